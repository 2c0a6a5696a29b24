"""The bound for ranks that meet once a step is not above what is best, nor above what is found."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs import packing_table
from planner.costs.cost_lines import CostLine
from planner.packing.packed_groups import packing_seconds
from planner.packing.stream_search import stream_search
from planner.scoring.bounds.stream_bound import stream_seconds
from tests.examples import examples
from tests.groupings import one_pool, simple
from tests.step_groupings import best, offloading, step_problems, warm_start


def found(problem):
    return packing_seconds(problem, stream_search(problem, warm_start(problem), 1)[0])


@pytest.mark.slow
@examples(100)
@given(step_problems(items=3, ranks=(1, 2, 3)), st.sampled_from((1.0, 1.01, 1.5, 20.0)), st.sampled_from((0, 2)))
def test_the_bound_holds_for_the_best_packing(problem, known, effort):
    """Whatever the packing that was known took."""
    least = best(problem)
    assert stream_seconds(problem, least * known, effort) <= least * (1 + 1e-9)
    assert packing_table(problem).least_step_seconds <= least * (1 + 1e-9)  # at which a search ends


@pytest.mark.slow
@examples(25)
@given(step_problems(items=4, ranks=(2, 4), pools=1))
def test_the_bound_holds_for_the_best_of_more_on_more_ranks(problem):
    least = best(problem)
    assert stream_seconds(problem, least * 1.1, 2) <= least * (1 + 1e-9)


@pytest.mark.slow
@examples(40)
@given(step_problems(items=30, ranks=(2, 7, 8, 16)))
def test_the_bound_holds_for_what_is_found(problem):
    """Told of a worse packing: the bound is never above what it is told."""
    value = found(problem)
    assert 0 < stream_seconds(problem, 2 * value, 2) <= value * (1 + 1e-9)


def test_perfect_balance_is_bounded_tightly():
    problem = replace(one_pool([100] * 8, 4, {1: CostLine(0.0, 1.0, 1.0)}, 200, step_seconds=5.0), sync="step")
    full = replace(problem, sizes=dict.fromkeys(range(4), 200))
    assert best(full) == packing_table(full).least_step_seconds == 206.0
    assert stream_seconds(problem, 207.0, 2) == pytest.approx(206.0, rel=1e-3)


def test_what_the_tokens_of_micro_batches_cost_is_counted():
    """Ten tokens to a micro-batch that costs three seconds: two ranks need three each for 60 tokens."""
    problem = replace(one_pool([10] * 6, 2, {1: CostLine(0.0, 0.1, 3.0)}, 10), sync="step")
    assert best(problem) == pytest.approx(12.0)
    assert stream_seconds(problem, 12.5, 3) == pytest.approx(12.0, rel=1e-2)


def test_ranks_that_hold_the_longest_have_less_time():
    """Alone on one rank it would take 40 seconds, on both of them 20 and all others after it."""
    problem = replace(simple([40, 10, 10], 2, (1, 2), cap=40), sync="step")
    assert best(problem) == pytest.approx(30.0)
    assert stream_seconds(problem, 31.0, 3) == pytest.approx(30.0, rel=1e-2)


def test_offload_makes_room_that_the_bound_counts_with():
    """Two micro-batches on both ranks, or with most of them on the host one on each."""
    problem = replace(one_pool([20, 20], 2, {1: CostLine(0.0, 0.1, 3.0), 2: CostLine(0.0, 0.09, 3.0)}, 10), sync="step")
    assert best(problem) == pytest.approx(9.6)
    assert stream_seconds(problem, 10.0, 3) == pytest.approx(9.6, rel=1e-2)
    offloaded = replace(problem, offload=offloading(0.9))
    assert best(offloaded) == pytest.approx(5.0)
    assert stream_seconds(offloaded, 10.0, 3) <= best(offloaded)


def test_the_bound_is_at_most_the_value():
    problem = replace(simple([10, 10], 2, (1,)), sync="step")
    assert stream_seconds(problem, 4.0, 2) == 4.0  # nothing takes so little: the value was no packing's


def test_a_slow_pool_is_bounded_by_what_both_can_do():
    """One of two ranks takes four times as long: together they do five tokens in four seconds."""
    problem = simple([10] * 20, 1, (1,))
    (fast,), (pool,) = problem.shapes, problem.pools
    slow = replace(fast, pool=1, line=CostLine(0.0, 4.0, 0.0))
    problem = replace(problem, pools=(pool, replace(pool, first=1)), shapes=(fast, slow), sync="step")
    assert found(problem) == pytest.approx(160.0)
    assert stream_seconds(problem, 165.0, 3) == pytest.approx(160.0, rel=1e-2)
