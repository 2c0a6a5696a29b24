"""No bound is above what is best, on any problem that can be tried out; none above what is found, on larger ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost, CostLine, RingTerm
from planner.packing.makespan_search import search_makespans
from planner.packing.packed_groups import packing_seconds
from planner.plan.task import Task
from planner.scoring.bounds.coupled_bound import coupled_seconds
from planner.scoring.bounds.step_bounds import (
    Bound,
    area_seconds,
    busiest_rank_seconds,
    exact_seconds,
    highest,
    packing_bound,
)
from planner.simulate import simulate
from planner.specs.base import Layers, Ranks
from tests.examples import examples
from tests.groupings import best, one_pool, problems, simple, warm_start
from tests.task_programs import programs


def found(problem):
    """What a short search is worth."""
    return packing_seconds(problem, search_makespans(problem, warm_start(problem), 1)[0])


@pytest.mark.slow
@examples(100)
@given(problems(), st.sampled_from((1.0, 1.01, 1.5, 20.0)))
def test_bounds_hold_for_the_best_grouping(problem, known):
    """Whatever the grouping that was known took."""
    least = best(problem)
    for seconds in (area_seconds(problem), exact_seconds(problem, least * known)):
        assert seconds <= least * (1 + 1e-7)
    for effort in (1, 3):
        assert coupled_seconds(problem, least * known, effort) <= least * (1 + 1e-9)
        assert packing_bound(problem, least * known, effort).seconds <= least * (1 + 1e-9)


@pytest.mark.slow
@given(problems(items=40, ranks=(2, 7, 8, 16)))
def test_bounds_hold_for_what_is_found(problem):
    """Told of a worse packing: coupling never bounds above what it is told."""
    value = found(problem)
    assert packing_bound(problem, 2 * value).seconds <= value * (1 + 1e-9)


@pytest.mark.slow
@examples(30)
@given(problems(items=20, ranks=(2, 4, 8)))
def test_more_effort_bounds_no_worse(problem):
    value = found(problem)
    bounds = [packing_bound(problem, value, effort).seconds for effort in (0, 1, 2, 3)]
    assert bounds == sorted(bounds)
    assert bounds[0] >= area_seconds(problem)


@examples(50)
@given(problems(items=4, nodes=False), st.integers(2, 3))
def test_bounds_grow_with_the_unit_of_time(problem, factor):
    """Seconds are seconds: every price times `factor` is every bound times `factor`."""

    def dearer(line):
        rings = tuple(RingTerm(ring.send_seconds * factor, ring.attention_seconds * factor) for ring in line.rings)
        return CostLine(line.quad * factor, line.lin * factor, line.const * factor, rings=rings)

    shapes = tuple(replace(shape, line=dearer(shape.line)) for shape in problem.shapes)
    row, step = problem.micro_batch_seconds * factor, problem.step_seconds * factor
    times = replace(problem, shapes=shapes, micro_batch_seconds=row, step_seconds=step)
    assert area_seconds(times) == pytest.approx(factor * area_seconds(problem))
    assert best(times) == pytest.approx(factor * best(problem))


def test_one_sequence_is_bounded_by_its_best_degree():
    lines = {1: CostLine(0.0, 1.0, 0.1), 2: CostLine(0.0, 0.7, 0.2)}
    problem = one_pool([100], 2, lines, 1000, micro_batch_seconds=3.0, step_seconds=5.0)
    assert best(problem) == pytest.approx(0.2 + 70 + 3 + 5)
    assert coupled_seconds(problem, best(problem), 2) == pytest.approx(best(problem))


def test_perfect_balance_is_bounded_tightly_by_area():
    problem = one_pool([100] * 8, 4, {1: CostLine(0.0, 1.0, 1.0)}, 200, micro_batch_seconds=3.0, step_seconds=5.0)
    assert area_seconds(problem) == pytest.approx(best(problem)) == pytest.approx(200 + 1 + 3 + 5)
    assert packing_bound(problem, best(problem) * 1.1).seconds == pytest.approx(best(problem))


def test_a_sequence_that_dwarfs_the_rest_is_bounded_by_coupling():
    """It holds half the ranks for long; what they cannot hold beside it needs another micro-batch."""
    lines = {degree: CostLine(0.01 / degree, 0.0, 0.0) for degree in (1, 4)}
    problem = one_pool([400] + [100] * 8, 8, lines, 100)
    assert (area_seconds(problem), best(problem)) == pytest.approx((300, 450))
    assert coupled_seconds(problem, 460.0, 2) == pytest.approx(450, rel=1e-3)


def test_ranks_of_two_kinds_are_bounded_by_what_both_can_do():
    """One of two takes four times as long: together they do five tokens in four seconds."""
    problem = simple([10] * 20, 1, (1,))
    (fast,), (pool,) = problem.shapes, problem.pools
    slow = replace(fast, pool=1, line=CostLine(0.0, 4.0, 0.0))
    problem = replace(problem, pools=(pool, replace(pool, first=1)), shapes=(fast, slow))
    assert found(problem) == pytest.approx(160.0)
    assert packing_bound(problem, 165.0).seconds == pytest.approx(160.0, rel=1e-3)


@given(programs())
def test_nothing_ends_before_its_busiest_rank(program):
    """Work that shares a device counts by its share."""
    tasks, price = program
    timeline = simulate(tasks, price)
    assert busiest_rank_seconds(tasks, [*map(price, tasks)]) <= timeline.step_seconds * (1 + 1e-9)


def test_two_halves_of_a_device_are_as_busy_as_one():
    halves = [Task("m", Layers((0,)), "F", 0, name, Ranks((0,)), share=0.5) for name in "ab"]
    cost = Cost(2.0, "measured", 0.0)
    timeline = simulate(halves, lambda task: cost)
    assert busiest_rank_seconds(halves, [cost, cost]) == 2.0
    assert timeline.step_seconds == 2.0


def test_a_bound_that_is_truly_higher_is_named_wherever_it_stands():
    assert highest([Bound(1.0, "area"), Bound(1.0 + 1e-9, "coupled")]).by == "coupled"
    assert highest([Bound(0.0, "area"), Bound(0.0, "coupled")]) == Bound(0.0, "area")
