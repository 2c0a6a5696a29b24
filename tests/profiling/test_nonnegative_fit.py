"""Fits are the best non-negative ones: exact where a line is exact, never below zero."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.profiling.pass_fit import fit_nonnegative

coefficient = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
BATCHES = [(64,), (128,), (256, 128), (512,), (256,) * 4, (1024, 512), (2048,), (128,) * 16, (4096,), (2048, 1024)]
COLUMNS = np.array([(sum(s * s for s in batch) / 1e6, sum(batch) / 1e3, 1.0) for batch in BATCHES])


@given(st.tuples(coefficient, coefficient, coefficient).filter(any))
def test_known_coefficients_come_back(known):
    values = COLUMNS @ np.array(known)
    found = fit_nonnegative(COLUMNS, values)
    assert (found >= 0).all()
    assert COLUMNS @ found == pytest.approx(values, rel=1e-7)
    assert found == pytest.approx(np.array(known), rel=1e-4, abs=1e-7 * max(known))


def loss(values, coefficients):
    return float(np.sum((COLUMNS @ coefficients / values - 1) ** 2))


@given(st.lists(st.floats(0.1, 10.0), min_size=len(BATCHES), max_size=len(BATCHES)))
def test_nothing_nonnegative_is_better(factors):
    values = COLUMNS.sum(axis=1) * np.array(factors)
    found = fit_nonnegative(COLUMNS, values)
    assert (found >= 0).all()
    least = loss(values, found)
    for step in product((-0.02, 0.0, 0.02), repeat=3):  # the problem is convex: no neighbour is better
        assert loss(values, np.maximum(found + np.array(step), 0)) >= least - 1e-9


def test_a_line_that_wants_to_go_below_zero_stops_there():
    tokens = np.array([100.0, 200.0, 400.0])
    columns = np.stack([tokens, np.ones(3)], axis=1)
    slope, constant = fit_nonnegative(columns, 2 * tokens - 50)
    assert constant == 0 and 1 < slope < 2


def test_a_required_column_gets_its_share():
    columns = np.array([(1.0, 10.0), (1.0, 20.0), (1.0, 30.0)])
    falling = np.array([3.0, 2.9, 2.8])
    assert fit_nonnegative(columns, falling)[1] == 0
    assert fit_nonnegative(columns, falling, always=(1,))[1] > 0
