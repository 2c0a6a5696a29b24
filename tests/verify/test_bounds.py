"""No bound is above what is best, on any problem that can be tried out; none above what is found, on larger ones."""

import pytest
from hypothesis import given, settings

from planner.costs.cost import Cost
from planner.costs.lines import Line
from planner.costs.sequences import Sequences
from planner.packing.balanced import best_balanced, one_by_one
from planner.packing.packed import worth
from planner.packing.search import search
from planner.plan.task import Task
from planner.simulate import simulate
from planner.specs.base import Layers, Ranks
from planner.verify.bounds import area, busiest_rank, coupled, longest, lower_bound
from tests.groupings import best, problems
from tests.programs import programs


@settings(max_examples=200)
@given(problems())
def test_bounds_hold_for_the_best_grouping(problem):
    least = best(problem) * (1 + 1e-9)
    for bound in (area, longest, coupled, lower_bound):
        assert bound(problem).seconds <= least, bound.__name__


@given(problems(items=40, ranks=(2, 7, 8, 16)))
def test_bounds_hold_for_what_is_found(problem):
    packed, _ = search(problem, best_balanced(problem) or one_by_one(problem), 1)
    assert lower_bound(problem).seconds <= worth(problem, packed) * (1 + 1e-9)


def test_one_sequence_is_bounded_by_its_best_degree():
    lines = {1: Line(0.0, 1.0, 0.1), 2: Line(0.0, 0.7, 0.2)}
    problem = Sequences({0: 100}, 2, (1, 2), lines, 1000, 3.0, 5.0, {})
    assert best(problem) == pytest.approx(0.2 + 70 + 3 + 5)
    assert longest(problem).seconds == pytest.approx(0.1 + 70 + 3 + 5)


def test_perfect_balance_is_bounded_tightly_by_area():
    problem = Sequences(dict(enumerate([100] * 8)), 4, (1,), {1: Line(0.0, 1.0, 1.0)}, 200, 3.0, 5.0, {})
    assert lower_bound(problem).seconds == pytest.approx(best(problem)) == pytest.approx(200 + 1 + 3 + 5)


def test_a_sequence_that_dwarfs_the_rest_is_bounded_by_coupling():
    """It holds half the ranks for long; what they cannot hold beside it needs another micro-batch."""
    lines = {degree: Line(0.01 / degree, 0.0, 0.0) for degree in (1, 4)}
    sizes = {0: 400, **{i: 100 for i in range(1, 9)}}
    problem = Sequences(sizes, 8, (1, 4), lines, 100, 0.0, 0.0, {})
    assert (area(problem).seconds, longest(problem).seconds, best(problem)) == pytest.approx((300, 400, 450))
    assert coupled(problem).seconds == pytest.approx(450, rel=1e-3)


@given(programs())
def test_nothing_ends_before_its_busiest_rank(program):
    """Work that shares a device counts by its share."""
    tasks, price = program
    timeline = simulate(tasks, price)
    assert busiest_rank(tasks, timeline).seconds <= timeline.step_seconds * (1 + 1e-9)


def test_two_halves_of_a_device_are_as_busy_as_one():
    halves = [Task("m", Layers((0,)), "F", 0, name, Ranks((0,)), share=0.5) for name in "ab"]
    timeline = simulate(halves, lambda task: Cost(2.0, "measured", 0.0))
    assert busiest_rank(halves, timeline) == (2.0, "busiest_rank")
    assert timeline.step_seconds == 2.0
