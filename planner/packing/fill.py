"""Longest-first fill: given how long each micro-batch may last, put sequences into groups of their own degree.

Longest sequences first, each into the open group where it leaves the least rank-time free (best fit decreasing); when
none has room, a new group of the smallest degree that holds the sequence in memory and in time, in the longest
micro-batch that still has ranks: long sequences take more time per token of memory, so they go where time is plenty and
leave the short micro-batches to the tokens. When some sequence finds no room, the makespans were too tight.
"""

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from planner.costs.sequences import Sequences
from planner.packing.packed import Packed, PackedGroup

Option = tuple[int, float, int]  # degree, seconds, room in tokens
OpenGroup = list[Any]  # [seconds left, tokens left, degree, row, items]: a list, because this is the hot loop


@dataclass(frozen=True, slots=True)
class Order:
    """Items longest first, each with what it costs on every degree that can hold it; made once per problem."""

    items: tuple[tuple[int, int, tuple[Option, ...], dict[int, float]], ...]  # item, size, options, seconds by degree
    ranks: int


def make_order(problem: Sequences) -> Order:
    rows = []
    for item in sorted(problem.sizes, key=lambda i: (-problem.sizes[i], i)):
        size = problem.sizes[item]
        options = tuple(
            (degree, problem.lines[degree].quad * size * size + problem.lines[degree].lin * size, problem.cap * degree)
            for degree in problem.choices(item)
        )
        rows.append((item, size, options, {degree: seconds for degree, seconds, _ in options}))
    return Order(tuple(rows), problem.ranks)


def fill(order: Order, spans: list[float]) -> Packed | None:
    """A packing whose micro-batches last at most `spans` (seconds without the lines' constants), or None."""
    free = [order.ranks] * len(spans)
    longest_first = sorted(range(len(spans)), key=lambda row: (-spans[row], row))
    open_groups: list[OpenGroup] = []
    for item, size, options, seconds in order.items:
        best, least, spent = None, float("inf"), 0.0
        for group in open_groups:
            left, room, degree = group[0], group[1], group[2]
            if room >= size and degree in seconds:
                rest = left - seconds[degree]
                if rest >= 0.0 and rest * degree < least:
                    best, least, spent = group, rest * degree, seconds[degree]
        if best is None:
            best = opened(options, spans, free, longest_first)
            if best is None:
                return None
            open_groups.append(best)
            spent = seconds[best[2]]
        best[0] -= spent
        best[1] -= size
        best[4].append(item)
    return gather(open_groups, len(spans))


def opened(options: tuple[Option, ...], spans: list[float], free: list[int], rows: list[int]) -> OpenGroup | None:
    """A new group for an item of these options: longest micro-batch first, smallest degree that does it."""
    for row in rows:
        for degree, seconds, room in options:
            if degree > free[row]:
                break
            if seconds <= spans[row]:
                free[row] -= degree
                return [spans[row], room, degree, row, []]
    return None


def gather(groups: list[OpenGroup], rows: int) -> Packed:
    packed: list[list[PackedGroup]] = [[] for _ in range(rows)]
    for _, _, degree, row, items in sorted(groups, key=itemgetter(3)):
        packed[row].append(PackedGroup(degree, tuple(items)))
    return tuple(map(tuple, packed))
