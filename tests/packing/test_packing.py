"""Every packing is possible and complete; nothing that is returned is worse than the best balanced plan."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.lines import Line
from planner.costs.sequences import Sequences
from planner.packing.balanced import balanced, best_balanced, one_by_one
from planner.packing.fill import fill, make_order
from planner.packing.packed import Packed, PackedGroup, makespan, ordered, worth
from planner.packing.search import EFFORT_FILLS, search
from tests.groupings import best, problems

LARGE = {"items": 40, "ranks": (2, 7, 8, 16)}


def searched(problem: Sequences, effort: int = 1) -> Packed:
    return search(problem, best_balanced(problem) or one_by_one(problem), effort)[0]


def check_possible(problem, packed):
    """Each item once, ranks, degrees, cap, what was fixed; and in the one order that there is."""
    assert sorted(item for row in packed for group in row for item in group.items) == sorted(problem.sizes)
    for row in packed:
        assert sum(group.degree for group in row) <= problem.ranks
        for group in row:
            assert group.degree in problem.degrees
            assert sum(problem.sizes[item] for item in group.items) <= problem.cap * group.degree
            assert all(problem.fixed.get(item, group.degree) == group.degree for item in group.items)
    assert ordered(packed, problem) == packed


@given(problems(**LARGE))
def test_packings_are_possible_and_no_worse_than_the_balanced_one(problem):
    warm = best_balanced(problem)
    packed = searched(problem)
    check_possible(problem, packed)
    check_possible(problem, one_by_one(problem))
    if warm:
        check_possible(problem, warm)
        assert worth(problem, packed) <= worth(problem, warm)
    assert worth(problem, packed) <= worth(problem, one_by_one(problem))


@given(problems(**LARGE), st.randoms(use_true_random=False))
def test_the_order_of_items_changes_nothing(problem, chance):
    shuffled = list(problem.sizes.items())
    chance.shuffle(shuffled)
    assert searched(replace(problem, sizes=dict(shuffled))) == searched(problem)


@given(problems(**LARGE))
def test_more_effort_is_never_worse_and_keeps_to_its_fills(problem):
    warm = best_balanced(problem) or one_by_one(problem)
    values = []
    for effort in (1, 2, 3):
        packed, spent = search(problem, warm, effort)
        assert spent <= EFFORT_FILLS[effort]
        values.append(worth(problem, packed))
    assert values[1] <= values[0] * (1 + 1e-12) and values[2] <= values[0] * (1 + 1e-12)


@given(problems())
def test_no_packing_beats_trying_them_all(problem):
    assert worth(problem, searched(problem, 2)) >= best(problem) * (1 - 1e-9)


def simple(sizes, ranks, degrees, cap=10**6, row=0.0) -> Sequences:
    """A group of degree d takes its tokens over d; every micro-batch takes `row` more."""
    lines = {degree: Line(0.0, 1.0 / degree, 0.0) for degree in degrees}
    return Sequences(dict(enumerate(sizes)), ranks, degrees, lines, cap, row, 0.0, {})


def test_longest_first_balances_within_four_thirds():
    """Graham's bound: LPT over m groups lasts at most 4/3 − 1/(3m) times the best, here 9 + 9 + 9 of tokens."""
    problem = simple([5, 5, 4, 4, 3, 3, 3], 3, (1,))
    (row,) = balanced(problem, 1, 3, 1)
    assert makespan(problem, row) == pytest.approx(9 * (4 / 3 - 1 / 9))  # which this instance attains


def test_the_constants_decide_how_many_micro_batches():
    cheap, dear = simple([100] * 8, 2, (1,), cap=200, row=0.0), simple([100] * 8, 2, (1,), cap=400, row=50.0)
    assert len(searched(cheap)) >= 2
    assert len(searched(dear)) == 1


def test_long_beside_short():
    """One sequence takes half the ranks; the short ones share the others instead of waiting for it."""
    problem = simple([400, 50, 50, 50, 50], 8, (1, 2, 4))
    packed = searched(problem, 2)
    assert {group.degree for group in packed[0] if 0 in group.items} == {4}
    assert worth(problem, packed) == pytest.approx(100.0)


def test_fixed_degrees_that_no_one_degree_can_serve_are_packed_all_the_same():
    sizes = {item: 20 + item for item in range(200)}
    fixed = {item: (1, 4, 8)[item % 3] for item in sizes}
    problem = replace(simple([], 8, (1, 4, 8), cap=250, row=1.0), sizes=sizes, fixed=fixed)
    assert best_balanced(problem) is None
    packed = searched(problem, 2)
    check_possible(problem, packed)
    assert len(packed) < 60  # one by one there were 200


def test_a_fill_that_is_too_tight_says_so():
    problem = simple([100, 100], 2, (1,))
    order = make_order(problem)
    assert fill(order, [99.0]) is None
    assert fill(order, [100.0]) == ((PackedGroup(1, (0,)), PackedGroup(1, (1,))),)
