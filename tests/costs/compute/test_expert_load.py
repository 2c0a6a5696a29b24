"""The load of the fullest rank of experts against brute force, and what it does to prices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.expert_load import NORMAL_80, expert_load
from planner.costs.layout_columns import LayoutColumns
from planner.costs.step.expert_ratio import load_spread
from planner.costs.step.stage_seconds import mean_layer_seconds
from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from tests.costs.machines import LLAMA, MIXTRAL, ideal

TIMING = TimingCoefficients(imbalance=0.4)
ROWS = st.lists(st.lists(st.integers(1, 100), min_size=8, max_size=8), min_size=1, max_size=4)


def setup(**fields):
    return LayoutColumns(**{"ranks": 64, "seq": 4096, "batch": 64, **fields})


def counted(rows):
    rows = tuple(tuple(map(float, row)) for row in rows)
    return with_fields(MIXTRAL, moe=with_fields(MIXTRAL.moe, counts=rows))


@given(rows=ROWS)
def test_counts_give_the_mean_and_spread_of_the_fullest_block_of_experts(rows):
    degrees = [1, 2, 4, 8]
    many = expert_load(counted(rows), setup(ep=np.array(degrees)), TIMING)
    for number, ep in enumerate(degrees):
        own = 8 // ep
        fullest = [max(sum(row[r * own : (r + 1) * own]) for r in range(ep)) * ep / sum(row) for row in rows]
        assert many.mean[number] == pytest.approx(np.mean(fullest))
        assert many.spread[number] == pytest.approx(NORMAL_80 * np.std(fullest))
        assert expert_load(counted(rows), setup(ep=ep), TIMING).mean == pytest.approx(np.mean(fullest))
    assert many.source == "measured"
    assert many.mean[0] == pytest.approx(1.0)
    assert np.all(np.diff(many.mean) >= -1e-12), "a part of a block is never emptier than the block in the mean"


def test_an_assumed_load_is_said_to_be_and_is_that_of_the_fullest_of_random_ranks():
    """Eight experts whose loads deviate by themselves, over ep ranks, drawn many times."""
    drawn = np.random.default_rng(1).normal(1.0, TIMING.imbalance, (20_000, 8))
    for ep in (1, 2, 4, 8):
        even, learnt = (expert_load(MIXTRAL, setup(ep=ep, imbalance=each), TIMING) for each in (0.0, 1.0))
        fullest = drawn.reshape(len(drawn), ep, -1).mean(axis=2).max(axis=1).mean()
        assert (even.mean, even.source, even.spread) == (1.0, "assumed", learnt.spread)
        assert float(learnt.mean) == 1.0 + float(learnt.spread) == pytest.approx(fullest, abs=0.01)


def test_counts_of_an_even_load_cost_what_balanced_experts_do_and_leave_no_spread():
    at, machine = setup(ep=8), ideal(TIMING)
    even = counted([[5] * 8] * 3)
    assert mean_layer_seconds(even, at, machine).seconds == pytest.approx(
        mean_layer_seconds(MIXTRAL, at, machine).seconds
    )
    assert load_spread(even, at, machine) == pytest.approx(0.0)
    assert load_spread(LLAMA, at, machine) == 0.0
    assumed = float(load_spread(MIXTRAL, at, machine))
    assert 0.0 < assumed < expert_load(MIXTRAL, at, TIMING).spread, "experts are part of a layer"
    measured = counted([[9, 5, 5, 5, 5, 5, 5, 5]])
    assert load_spread(measured, at, machine) == pytest.approx(0.0)
    assert mean_layer_seconds(measured, at, machine).seconds > mean_layer_seconds(even, at, machine).seconds


def test_a_load_above_the_mean_is_priced_as_that_load():
    """Two rows around a mean: a half-width above it costs as much as a row of that load."""
    rows = [[9, 5, 5, 5, 5, 5, 5, 5], [6, 5, 5, 5, 5, 5, 5, 5]]
    at, machine = setup(ep=8), ideal(TIMING)
    load = expert_load(counted(rows), at, TIMING)
    upper = float(load.mean + load.spread)
    rest = (8 - upper) / 7
    above = mean_layer_seconds(counted(rows), replace(at, load_spreads=1.0), machine).seconds
    assert above == pytest.approx(mean_layer_seconds(counted([[upper, *[rest] * 7]]), at, machine).seconds)


def test_counts_that_do_not_fit_the_experts_are_refused():
    for rows, said in (([[1, 2]], "2 counts"), ([[0] * 8], "no tokens")):
        with pytest.raises(InputError, match=said):
            counted(rows)
