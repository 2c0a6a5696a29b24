"""Leveling moves items within micro-batches, never to the worse, until no single exchange makes one shorter."""

from collections import Counter
from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from planner.costs.packing_problem import PackingProblem
from planner.costs.packing_table import packing_table
from planner.packing.leveling import level_micro_batches
from planner.packing.packed_groups import PackedGroup, canonical_order, makespan
from tests.examples import examples
from tests.groupings import any_packing, holds, problems, require_possible, simple

LARGE = {"items": 25, "ranks": (2, 4, 8)}
Chance = st.randoms(use_true_random=False)
Row = tuple[PackedGroup, ...]


def exchanged(problem: PackingProblem, micro_batch: Row):
    """Seconds of the two groups after every single move out of the slowest, or swap with it, that is possible."""
    makespans = [problem.seconds(group.shape, group.items) for group in micro_batch]
    slowest = micro_batch[makespans.index(max(makespans))]
    for other in micro_batch:
        if other is slowest:
            continue
        for away, taken in product(slowest.items, [None, *other.items]):
            mine = tuple(item for item in (*slowest.items, taken) if item not in (away, None))
            theirs = tuple(item for item in (*other.items, away) if item != taken)
            if holds(problem, slowest.shape, mine) and holds(problem, other.shape, theirs):
                yield max(problem.seconds(slowest.shape, mine), problem.seconds(other.shape, theirs))


@examples(150)
@given(problems(**LARGE), Chance, st.sampled_from((0, 1, 3, 1000)))
def test_micro_batches_keep_their_items_and_never_get_longer(problem, chance, exchanges):
    packed = any_packing(problem, chance)
    leveled = level_micro_batches(packing_table(problem), packed, exchanges)
    require_possible(problem, canonical_order(leveled, problem))
    for before, after in zip(packed, leveled, strict=True):
        assert [(g.shape, g.first_rank) for g in before] == [(g.shape, g.first_rank) for g in after]
        items = (Counter(item for group in micro_batch for item in group.items) for micro_batch in (before, after))
        assert len({frozenset(each.items()) for each in items}) == 1
        assert makespan(problem, after) <= makespan(problem, before) * (1 + 1e-9)
    if not exchanges:
        assert canonical_order(leveled, problem) == packed


@examples(150)
@given(problems(**LARGE), Chance)
def test_in_the_end_no_exchange_makes_a_micro_batch_shorter(problem, chance):
    for micro_batch in level_micro_batches(packing_table(problem), any_packing(problem, chance), 10**5):
        makespans = sorted(problem.seconds(group.shape, group.items) for group in micro_batch)
        if len(makespans) > 1 and makespans[-1] > makespans[-2] * (1 + 1e-6):  # else which one is the slowest is chance
            assert all(after >= makespans[-1] * (1 - 1e-6) for after in exchanged(problem, micro_batch))


def test_a_swap_levels_what_no_move_can():
    """7 + 5 beside 4 + 4 are leveled by giving either for a 4; beside 6 + 6 nothing is to be gained."""
    problem = simple([7, 5, 4, 4], 2, (1,), cap=12)
    micro_batch = (PackedGroup(0, (0, 1), 0), PackedGroup(0, (2, 3), 1))
    (leveled,) = level_micro_batches(packing_table(problem), (micro_batch,), 10)
    assert sorted(makespan(problem, (group,)) for group in leveled) == [9.0, 11.0]
    tight = replace(problem, sizes={0: 7, 1: 5, 2: 6, 3: 6})
    assert level_micro_batches(packing_table(tight), (micro_batch,), 10) == (micro_batch,)
