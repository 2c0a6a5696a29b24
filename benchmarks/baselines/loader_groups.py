"""Samples exchanged within groups of data ranks, so that what they bring to encoders is even over the ranks of a group.

Ranks that load data near each other tell each other lengths alone, and none reads a sample of another group
(MegaScale-Omni's grouped reordering, arXiv 2605.08962). Every rank keeps its number of samples: they are placed longest
first, and by largest differences (Karmarkar and Karp, 1982; balanced as in Yakir, Math. Oper. Res. 21, 1996), and
exchanged; the better of both is taken.
"""

from heapq import heapify, heappop, heappush

import numpy as np

from planner.costs import Floats, Ints
from planner.packing import exchange_loads, longest_first

EXCHANGES = 200
GROUP = 8  # data ranks


def reorder_within_groups(seconds: Floats, ranks: int, group: int = GROUP) -> Ints:
    """The sample at each position, (samples,): a permutation, where each rank has as many consecutive positions.
    `seconds`: (samples,) of encoders. Raises ValueError where samples do not divide over ranks.
    """
    if len(seconds) % ranks:
        raise ValueError(f"{len(seconds)} samples do not divide over {ranks} ranks")
    room, found = len(seconds) // ranks, []
    for first in range(0, ranks, group):
        own = np.arange(first * room, min(first + group, ranks) * room)
        count = len(own) // max(1, room)
        bins = evenly_filled(seconds[own], count)
        found += [own[bins == rank] for rank in range(count)]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def evenly_filled(seconds: Floats, bins: int) -> Ints:
    """The bin of each load, (loads,), each bin with as many."""
    room, nothing = len(seconds) // bins if bins else 0, np.zeros(bins)
    if not room:
        return np.zeros(len(seconds), dtype=np.int64)
    table = np.repeat(seconds[:, None], bins, axis=1)
    starts = longest_first(seconds, nothing, room), largest_differences(seconds, bins)
    found = [exchange_loads(table, start, nothing, EXCHANGES, may_move=False) for start in starts]
    return min(found, key=lambda each: float(np.bincount(each, seconds, minlength=bins).max()))


def largest_differences(seconds: Floats, bins: int) -> Ints:
    """The bin of each load, each bin with as many: of partial divisions with one load a bin, the two whose bins differ
    most are joined, the fullest bin of one with the emptiest of the other, until one is left.
    """
    order = np.argsort(-seconds, kind="stable").reshape(-1, bins)
    heap = [division([[load] for load in loads], seconds, number) for number, loads in enumerate(order.tolist())]
    heapify(heap)
    for number in range(len(order), 2 * len(order) - 1):
        (_, _, one), (_, _, other) = heappop(heap), heappop(heap)
        joined = [full + empty for full, empty in zip(one, reversed(other), strict=True)]
        heappush(heap, division(joined, seconds, number))
    found = np.zeros(len(seconds), dtype=np.int64)
    for number, loads in enumerate(heap[0][2]):
        found[loads] = number
    return found


def division(loads: list[list[int]], seconds: Floats, number: int) -> tuple[float, int, list[list[int]]]:
    """Bins by what they have, most first; in a heap, that whose bins differ most comes first, of equal ones the first
    made.
    """
    filled = [float(seconds[own].sum()) for own in loads]
    fullest_first = sorted(range(len(loads)), key=lambda at: (-filled[at], loads[at]))
    return min(filled) - max(filled), number, [loads[at] for at in fullest_first]
