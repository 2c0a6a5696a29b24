"""Several kinds of ranks are never worse than one of them alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import CostLine
from planner.costs.packing_problem import GroupShape, PackingProblem, RankPool
from planner.packing.balanced import best_balanced, one_item_per_micro_batch
from planner.packing.makespan_search import best_of_each_pool, restrict_to_pool, search_makespans, step_lower_bound
from planner.packing.packed_groups import packing_seconds
from planner.scoring.bounds.step_bounds import area_seconds
from tests.examples import examples
from tests.groupings import best, problems, require_possible


def solvable(problem: PackingProblem) -> bool:
    return all(problem.choices(item) for item in problem.sizes)


def alone(problem: PackingProblem) -> list[PackingProblem]:
    """The problems of single pools that have a solution."""
    return [each for n in range(len(problem.pools)) if solvable(each := restrict_to_pool(problem, n))]


@pytest.mark.slow
@examples(60)
@given(problems(items=25, ranks=(1, 2, 7, 8), pools=3), st.sampled_from([1, 2]))
def test_what_is_kept_is_no_worse_than_any_pool_alone(problem, effort):
    """Even from the worst packing there is, and always possible on all ranks."""
    warm = one_item_per_micro_batch(problem)
    packed, _ = best_of_each_pool(problem, warm, effort)
    require_possible(problem, packed)
    assert packing_seconds(problem, packed) <= packing_seconds(problem, warm)
    for each in alone(problem) if len(problem.pools) > 1 else []:
        found, _ = search_makespans(each, best_balanced(each) or one_item_per_micro_batch(each), effort)
        assert packing_seconds(problem, packed) <= packing_seconds(each, found) * (1 + 1e-12)


@given(problems(items=4, pools=2))
def test_the_best_on_all_ranks_is_no_worse_than_the_best_on_one_pool(problem):
    """By trying everything; and what a pool promises is never more than it gives."""
    for each in alone(problem):
        least = best(each)
        assert best(problem) <= least * (1 + 1e-12)
        assert step_lower_bound(each) <= least * (1 + 1e-9)
        assert step_lower_bound(each) == area_seconds(each)


def test_one_pool_is_left_as_it_is():
    line = CostLine(0.0, 1.0, 0.0)
    problem = PackingProblem({0: 5, 1: 3}, (RankPool(0, 2, 2),), (GroupShape(1, 0, 10, line),), 0.0, 0.0, {})
    warm = one_item_per_micro_batch(problem)
    assert best_of_each_pool(problem, warm, 2) == (warm, 0)


def test_a_pool_much_slower_than_the_other_stays_idle():
    """A rank that takes a hundred times as long helps nobody: all go to the other, beside each other."""
    shapes = (GroupShape(1, 0, 100, CostLine(0.0, 100.0, 0.0)), GroupShape(1, 1, 100, CostLine(0.0, 1.0, 0.0)))
    problem = PackingProblem(dict.fromkeys(range(6), 10), (RankPool(0, 2, 2), RankPool(2, 2, 2)), shapes, 0.0, 0.0, {})
    packed, _ = best_of_each_pool(problem, one_item_per_micro_batch(problem), 1)
    assert {group.shape for micro_batch in packed for group in micro_batch} == {1}
    assert packing_seconds(problem, packed) == best(problem) == 30.0
