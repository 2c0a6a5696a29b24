"""Short items whole on one rank each, long ones split over a group of ranks, so that the busiest rank has little to do.

An item takes as long as it is whole on one rank, or on each rank of a group its share and what exchanging heads for
tokens costs there (MegaScale-Omni's long-short sequence parallelism, arXiv 2605.08962). Items longer than a threshold
are split: every threshold that could be better than what is found is tried, the most promising first; the rest is
placed longest first and then exchanged.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs import Floats, Ints
from planner.packing.even_loads import exchange_loads, longest_first

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
    """Seconds of work of each rank, (ranks,)."""
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
    """The bin of each item, (items,), placed longest first and then exchanged."""
    table = np.repeat(seconds[:, None], len(start), axis=1)
    return exchange_loads(table, longest_first(seconds, start), start, EXCHANGES)
