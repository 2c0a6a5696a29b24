"""Long items split, short ones whole: exact where few, near it by thresholds, never worse than all alike."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.packing import LongShort, SplitProblem, exchange_loads, longest_first, rank_seconds, split_long
from planner.packing.long_short import split_first, threshold_bounds
from planner.programs import ProgramBuilder, solve
from tests.examples import examples


def problem_of(sizes, ranks, degree, exchange=0.02, start=None) -> SplitProblem:
    """Items of s tokens take s + s²/100 on a rank; split, so much of s besides on each rank of the group."""
    size = np.array(sizes, dtype=float)
    whole = size + size * size / 100
    begun = np.zeros(ranks) if start is None else np.array(start[:ranks], dtype=float)
    return SplitProblem(whole, whole / degree + exchange * size, degree, begun)


def least_of_all(problem: SplitProblem) -> float:
    """By trying every choice."""
    ranks, best, items = len(problem.start), np.inf, np.arange(len(problem.whole))
    for chosen in product(range(ranks + problem.groups), repeat=len(items)):
        place = np.array(chosen)
        is_split = place >= ranks
        place = np.where(is_split, place - ranks, place)
        best = min(best, float(rank_seconds(problem, is_split, place).max()))
    return best


def split_exactly(problem: SplitProblem, effort: int = 4, limit_seconds: float | None = None) -> LongShort:
    """The best choice of items to split, and the best places, as far as the effort goes: for few items.

    min C: each item is whole on one rank, or split over one group; what a rank has is at most C.
    """
    first, items, ranks = split_long(problem), len(problem.whole), len(problem.start)
    b = ProgramBuilder()
    slowest = b.variable(cost=1.0)
    whole = [[b.variable(0, 1, integer=True) for _ in range(ranks)] for _ in range(items)]
    split = [[b.variable(0, 1, integer=True) for _ in range(problem.groups)] for _ in range(items)]
    for item in range(items):
        b.row(dict.fromkeys((*whole[item], *split[item]), 1.0), 1.0, 1.0)
    for rank in range(ranks):
        load = {whole[item][rank]: float(problem.whole[item]) for item in range(items)}
        load |= {split[item][rank // problem.degree]: float(problem.split[item]) for item in range(items)}
        b.row({**load, slowest: -1.0}, upper=-float(problem.start[rank]))
    hint = np.zeros(1 + items * (ranks + problem.groups))
    hint[0] = first.seconds
    for item in range(items):
        hint[(split if first.is_split[item] else whole)[item][int(first.place[item])]] = 1.0
    found = solve(b.build(), effort=effort, limit_seconds=limit_seconds, hint=hint)
    if found.values is None:
        return first
    is_split = np.array([found.values[of_item].sum() > 0.5 for of_item in split], dtype=bool)
    table = [(split if is_split[item] else whole)[item] for item in range(items)]
    place = np.array([int(found.values[of_item].argmax()) for of_item in table], dtype=np.int64)
    seconds = float(rank_seconds(problem, is_split, place).max())
    best = first if first.seconds <= seconds else LongShort(is_split, place, seconds)
    return LongShort(best.is_split, best.place, best.seconds, found.bound)


SIZES = st.lists(st.integers(1, 120), min_size=1, max_size=5)
SHAPES = st.sampled_from([(2, 2), (4, 2), (4, 4), (3, 3)])
STARTS = st.lists(st.integers(0, 60), min_size=4, max_size=4)


@examples(25)
@given(SIZES, SHAPES, st.sampled_from([0.0, 0.02, 0.5, 3.0]), STARTS)
def test_few_items_are_placed_as_by_trying_every_choice(sizes, shape, exchange, start):
    problem = problem_of(sizes[: 4 if shape[0] == 4 else 5], *shape, exchange, start)
    found, best = split_exactly(problem), least_of_all(problem)
    assert found.seconds == pytest.approx(best, rel=1e-6)
    assert found.bound <= best * (1 + 1e-6)
    assert rank_seconds(problem, found.is_split, found.place).max() == found.seconds
    scanned = split_long(problem)
    assert scanned.bound <= best * (1 + 1e-9) and scanned.seconds >= best * (1 - 1e-9)


@examples(100)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.sampled_from([(4, 2), (8, 4), (16, 8), (16, 2)]),
       st.sampled_from([0.0, 0.05, 1.0]), st.lists(st.integers(0, 300), min_size=16, max_size=16))  # fmt: skip
def test_thresholds_are_no_worse_than_all_whole_or_all_split(sizes, shape, exchange, start):
    problem = problem_of(sizes, *shape, exchange, start)
    found, count = split_long(problem), problem.groups
    begun = problem.start.reshape(count, -1).max(axis=1)
    whole, split = (np.repeat(each[:, None], n, axis=1) for each, n in ((problem.whole, len(problem.start)),
                                                                        (problem.split, count)))  # fmt: skip
    all_whole = exchange_loads(whole, longest_first(problem.whole, problem.start), problem.start, 400)
    all_split = exchange_loads(split, longest_first(problem.split, begun), begun, 400)
    none = np.zeros(len(sizes), dtype=bool)
    for is_split, place in ((none, all_whole), (~none, all_split)):
        assert found.seconds <= rank_seconds(problem, is_split, place).max() * (1 + 1e-12)
    assert found.bound <= found.seconds * (1 + 1e-9)
    assert rank_seconds(problem, found.is_split, found.place).max() == found.seconds
    longest_whole = problem.whole[~found.is_split].max(initial=0.0)
    assert (problem.whole[found.is_split] >= longest_whole).all()


@examples(40)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_bound_of_thresholds_holds_for_any_items_that_are_split(sizes, chance):
    problem = problem_of(sizes, 4, 2)
    least = threshold_bounds(problem, np.argsort(-problem.whole, kind="stable")).min()
    for _ in range(20):
        is_split = np.array([chance.random() < 0.5 for _ in sizes])
        place = np.array([chance.randrange(problem.groups if split else 4) for split in is_split])
        assert least <= rank_seconds(problem, is_split, place).max() * (1 + 1e-9)


@pytest.mark.slow
def test_thresholds_are_within_two_percent_of_exact_in_the_mean():
    chance, over = np.random.default_rng(0), []
    for _ in range(12):
        sizes = np.minimum(chance.lognormal(3.0, 1.2, 9), 400)
        problem = problem_of(sizes, 4, 2, 0.1)
        exact, scanned = split_exactly(problem, effort=3), split_long(problem)
        over.append(scanned.seconds / exact.seconds - 1.0)
        assert over[-1] >= -1e-9
    assert np.mean(over) < 0.02


def test_a_long_item_is_split_and_short_ones_stay_whole():
    """40 s on one rank or 11 s on each of four; twelve of 3 s: split, every rank ends after 11 + 3 · 3 = 20 s."""
    problem = SplitProblem(np.array([40.0] + [3.0] * 12), np.array([11.0] + [2.0] * 12), 4, np.zeros(4))
    found = split_long(problem)
    assert found.is_split.tolist() == [True] + [False] * 12 and found.seconds == 20.0
    assert split_first(problem, np.arange(13), 0).seconds == 40.0 and split_exactly(problem).seconds == 20.0
