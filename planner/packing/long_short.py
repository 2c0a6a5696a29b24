"""Short items whole on one rank each, long ones split over a group of ranks, so that the busiest rank has little to do.

An item takes as long as it is whole on one rank, or on each rank of a group its share and what exchanging heads for
tokens costs there (MegaScale-Omni's long-short sequence parallelism, arXiv 2605.08962). Items longer than a threshold
are split: every threshold that could be better than what is found is tried, the most promising first; the rest is
placed longest first and then exchanged. Few items also exactly, by an integer program.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs import Floats, Ints
from planner.packing.even_loads import exchange_loads, longest_first
from planner.programs import ProgramBuilder, solve

Bools = NDArray[np.bool_]

EXCHANGES = 400
THRESHOLDS = 24  # that are tried at most


@dataclass(frozen=True, slots=True)
class SplitProblem:
    """Items that are whole on one of some ranks, or split over one of their groups of consecutive ranks."""

    whole: Floats  # (items,) seconds on one rank
    split: Floats  # (items,) seconds on each rank of a group
    degree: int  # ranks of a group, a divisor of `ranks`
    start: Floats  # (ranks,) seconds that they have to begin with

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.start) // self.degree


@dataclass(frozen=True, slots=True)
class LongShort:
    """Which items are split, and where each is."""

    is_split: Bools  # (items,)
    place: Ints  # (items,) the group of an item that is split, the rank of another
    seconds: float  # of the busiest rank
    bound: float = 0.0  # that no placement can beat


def rank_seconds(problem: SplitProblem, is_split: Bools, place: Ints) -> Floats:
    """(ranks,) what each has to do."""
    of_groups = np.bincount(place[is_split], problem.split[is_split], minlength=problem.groups)
    of_ranks = np.bincount(place[~is_split], problem.whole[~is_split], minlength=len(problem.start))
    return np.asarray(problem.start + of_ranks + np.repeat(of_groups, problem.degree))


def split_long(problem: SplitProblem) -> LongShort:
    """The best threshold found; no worse than all items whole, or all split."""
    order = np.argsort(-problem.whole, kind="stable")
    bounds = threshold_bounds(problem, order)
    best = min((split_first(problem, order, count) for count in (0, len(order))), key=lambda each: each.seconds)
    for count in np.argsort(bounds, kind="stable")[:THRESHOLDS].tolist():
        if bounds[count] >= best.seconds:
            break
        best = min(best, split_first(problem, order, count), key=lambda each: each.seconds)
    return LongShort(best.is_split, best.place, best.seconds, float(bounds.min()))


def threshold_bounds(problem: SplitProblem, order: Ints) -> Floats:
    """(items + 1,) what the busiest rank has at least, where so many of the longest items are split and the next is
    not: the mean, that next one, the longest that is split. The least of all holds for whatever items are split.
    """
    whole, split, none = problem.whole[order], problem.split[order], np.zeros(1)
    longest = np.maximum(np.append(whole, none), np.append(none, np.maximum.accumulate(split)))
    shared = problem.degree * split
    rest = np.cumsum(np.append(np.minimum(whole, shared), none)[::-1])[::-1]
    mean = (problem.start.sum() + np.cumsum(np.append(none, shared)) + rest) / len(problem.start)
    return np.asarray(np.maximum(np.maximum(mean, problem.start.max()), problem.start.min() + longest))


def split_first(problem: SplitProblem, order: Ints, count: int) -> LongShort:
    """The first `count` items of the order split, the others whole, each placed longest first."""
    is_split, place = np.zeros(len(order), dtype=bool), np.zeros(len(order), dtype=np.int64)
    long, short = order[:count], order[count:]
    is_split[long] = True
    place[long] = leveled(problem.split[long], problem.start.reshape(problem.groups, problem.degree).max(axis=1))
    of_groups = np.bincount(place[long], problem.split[long], minlength=problem.groups)
    place[short] = leveled(problem.whole[short], problem.start + np.repeat(of_groups, problem.degree))
    return LongShort(is_split, place, float(rank_seconds(problem, is_split, place).max()))


def leveled(seconds: Floats, start: Floats) -> Ints:
    """The bin of each item, (items,)."""
    table = np.repeat(seconds[:, None], len(start), axis=1)
    return exchange_loads(table, longest_first(seconds, start), start, EXCHANGES)


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
