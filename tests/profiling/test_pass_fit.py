"""Fits of passes: exact on a line, exact on the slower of a line and launches, honest about what they miss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.fit_lines import sharded_fit_line
from planner.costs.cost_lines import smooth_max
from planner.profiling.pass_fit import SizeFit, fit_nonnegative, fit_sizes, holdout_error
from planner.specs.hardware.profile import PassFit
from planner.units import MS

BATCHES = [(64,), (128,), (256, 128), (512,), (256,) * 4, (1024, 512), (2048,), (128,) * 16, (4096,), (2048, 1024)]
COLUMNS = np.array([(sum(s * s for s in batch) / 1e6, sum(batch) / 1e3, 1.0) for batch in BATCHES])
LINE = COLUMNS @ np.array([3.0, 2.0, 1.0])


def test_holdout_is_zero_on_a_line_and_sees_what_no_line_says():
    assert holdout_error(COLUMNS, LINE, False) == pytest.approx(0, abs=1e-9)
    wild = LINE * np.where(np.arange(len(LINE)) % 2, 1.5, 0.7)
    assert holdout_error(COLUMNS, wild, False) > 0.2
    assert np.median(SizeFit(fit_nonnegative(COLUMNS, wild)).errors(COLUMNS, wild)) < 0.5
    assert holdout_error(COLUMNS[:4], LINE[:4], False) is None  # two are left: too few for three coefficients


def test_launches_come_back_and_a_line_needs_none():
    assert fit_sizes(COLUMNS, LINE, True).launches == 0
    bound = smooth_max(LINE, 6.0)  # of six below it the longest takes 5.2 on the device
    found = fit_sizes(COLUMNS, bound, True)
    assert found.launches == pytest.approx(6.0, rel=0.05)
    assert found.errors(COLUMNS, bound).max() < 0.12 < fit_sizes(COLUMNS, bound, False).errors(COLUMNS, bound).max()


@given(st.lists(st.floats(0.2, 5.0), min_size=len(BATCHES), max_size=len(BATCHES)))
def test_launches_never_fit_worse_than_a_line(factors):
    values = LINE * np.array(factors)
    squared = [float(np.sum(fit_sizes(COLUMNS, values, how).errors(COLUMNS, values) ** 2)) for how in (True, False)]
    assert squared[0] <= squared[1]


def test_prices_are_what_was_fitted():
    fit = PassFit(ms_per_token2=1e-5, ms_per_token=0.01, ms=0.5, launch_ms=4.0)
    size_fit = SizeFit(np.array([1e-5, 0.01, 0.5]), 4.0)
    for sizes in ((10,), (200, 300), (5000,)):
        columns = np.array([(sum(s * s for s in sizes), sum(sizes), 1.0)])
        assert sharded_fit_line(fit, 1.0, 1.0).seconds(sizes) == pytest.approx(size_fit.seconds(columns)[0] * MS)
    alone = sharded_fit_line(fit, 3.0, 4.0).seconds((10,))  # sharding does not shorten launches
    assert alone == pytest.approx(3 * 4.0 * MS, rel=1e-3)
