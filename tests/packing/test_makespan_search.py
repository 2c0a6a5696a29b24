"""Every packing is possible and complete; nothing that is returned is worse than the best balanced plan."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.packing_problem import PackingProblem
from planner.costs.packing_table import packing_table
from planner.packing.balanced import (
    best_balanced,
    group_starts,
    one_item_per_micro_batch,
    pack_longest_first,
)
from planner.packing.fill import fill
from planner.packing.makespan_search import BUDGET, search_makespans
from planner.packing.packed_groups import PackedGroup, Packing, canonical_order, makespan, packing_seconds
from planner.packing.rank_placement import make_nodes
from tests.groupings import best, best_of_shape, problems, require_possible, simple, warm_start

LARGE = {"items": 40, "ranks": (2, 7, 8, 16)}


def searched(problem: PackingProblem, effort: int = 1) -> Packing:
    return search_makespans(problem, warm_start(problem), effort)[0]


def check_possible(problem, packed):
    """Possible, and in the one order that there is."""
    require_possible(problem, packed)
    assert canonical_order(packed, problem) == packed


@pytest.mark.slow
@given(problems(**LARGE))
def test_packings_are_possible_and_no_worse_than_the_balanced_one(problem):
    warm = best_balanced(problem)
    packed = searched(problem)
    check_possible(problem, packed)
    check_possible(problem, one_item_per_micro_batch(problem))
    if warm:
        check_possible(problem, warm)
        assert packing_seconds(problem, packed) <= packing_seconds(problem, warm)
        assert len({group.shape for micro_batch in warm for group in micro_batch}) == 1
    assert packing_seconds(problem, packed) <= packing_seconds(problem, warm or one_item_per_micro_batch(problem))


@given(problems(**LARGE))
def test_the_best_balanced_plan_is_at_least_the_best_over_all_shapes(problem):
    """What was left out, because perfect balance would not have made it the best, was not; and leveling may gain."""
    found = [packed for shape in range(len(problem.shapes)) if (packed := best_of_shape(problem, shape))]
    warm = best_balanced(problem)
    assert bool(found) == bool(warm)
    if warm:
        least = min(packing_seconds(problem, packed) for packed in found)
        assert packing_seconds(problem, warm) <= least * (1 + 1e-12)


@pytest.mark.slow
@given(problems(**LARGE), st.randoms(use_true_random=False))
def test_the_order_of_items_changes_nothing(problem, chance):
    shuffled = list(problem.sizes.items())
    chance.shuffle(shuffled)
    assert searched(replace(problem, sizes=dict(shuffled))) == searched(problem)


@pytest.mark.slow
@given(problems(**LARGE))
def test_every_effort_keeps_to_its_fills_and_is_no_worse_than_none(problem):
    warm = warm_start(problem)
    assert packing_seconds(problem, search_makespans(problem, warm, 0)[0]) == packing_seconds(problem, warm)
    for effort in (1, 2):
        packed, spent = search_makespans(problem, warm, effort)
        assert spent <= BUDGET.fills(effort, len(problem.sizes)) <= BUDGET.fills(effort, 1)
        assert packing_seconds(problem, packed) <= packing_seconds(problem, warm)


@pytest.mark.slow
@given(problems())
def test_no_packing_beats_trying_them_all(problem):
    assert packing_seconds(problem, searched(problem, 2)) >= best(problem) * (1 - 1e-9)


def test_longest_first_balances_within_four_thirds():
    """Graham's bound: LPT over m groups lasts at most 4/3 − 1/(3m) times the best, here 9 + 9 + 9 of tokens."""
    problem = simple([5, 5, 4, 4, 3, 3, 3], 3, (1,))
    (micro_batch,) = pack_longest_first(packing_table(problem), 0, 1)
    assert makespan(problem, micro_batch) == pytest.approx(9 * (4 / 3 - 1 / 9))  # which this instance attains


def test_the_constants_decide_how_many_micro_batches():
    cheap, dear = simple([100] * 8, 2, (1,), cap=200), simple([100] * 8, 2, (1,), cap=400, micro_batch_seconds=50.0)
    assert len(searched(cheap)) >= 2
    assert len(searched(dear)) == 1


def test_long_beside_short():
    """One sequence takes half the ranks; the short ones share the others instead of waiting for it."""
    problem = simple([400, 50, 50, 50, 50], 8, (1, 2, 4))
    packed = searched(problem, 2)
    assert {problem.shapes[group.shape].degree for group in packed[0] if 0 in group.items} == {4}
    assert packing_seconds(problem, packed) == pytest.approx(100.0)


def test_a_slow_pool_takes_less():
    """A rank that takes four times as long gets a fourth as many tokens, so that both end together."""
    problem = simple([10] * 20, 1, (1,))
    (fast,), (pool,) = problem.shapes, problem.pools
    slow = replace(fast, pool=1, line=replace(fast.line, lin=4.0))
    problem = replace(problem, pools=(pool, replace(pool, first=1)), shapes=(fast, slow))
    (micro_batch,) = searched(problem, 2)
    assert [len(group.items) for group in micro_batch] == [16, 4]


def test_fixed_degrees_that_no_one_degree_can_serve_are_packed_all_the_same():
    sizes = {item: 20 + item for item in range(200)}
    fixed = {item: (1, 4, 8)[item % 3] for item in sizes}
    problem = simple(sizes, 8, (1, 4, 8), cap=250, micro_batch_seconds=1.0, fixed=fixed)
    assert best_balanced(problem) is None
    packed = searched(problem, 2)
    check_possible(problem, packed)
    assert len(packed) < 60  # one by one there were 200


def test_a_fill_that_is_too_tight_says_so():
    problem = simple([100, 100], 2, (1,))
    table, nodes = packing_table(problem), make_nodes(problem)
    assert fill(table, nodes, np.array([99.0])) is None
    filled = fill(table, nodes, np.array([100.0]))
    assert filled.to_packing() == ((PackedGroup(0, (0,), 0), PackedGroup(0, (1,), 1)),)


def test_a_shape_makes_as_many_groups_as_its_nodes_have_room_for():
    problem = simple([1], 12, (1, 3, 8, 12), per_node=4)
    assert [group_starts(problem, shape) for shape in range(4)] == [[*range(12)], [0, 4, 8], [0], [0]]
