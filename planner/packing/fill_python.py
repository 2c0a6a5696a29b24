"""The fill in plain Python: what fill.c does, line by line, for machines without the compiled library."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from math import inf

from planner.costs import Floats, PackingTable
from planner.packing.rank_placement import FreeNodes, NodeTable


@dataclass(slots=True)
class OpenGroup:
    """A group that can still take items."""

    shape: int
    micro_batch: int
    first_rank: int  # first rank
    seconds_left: float  # seconds until its micro-batch is full
    tokens_left: int  # tokens that still fit
    seconds_used: float  # seconds, the constant included


def fill_groups(
    table: PackingTable, nodes: NodeTable, durations: Floats, order: list[int]
) -> tuple[list[OpenGroup], list[int]] | None:
    """Groups, and the group of every item; None when some item fits nowhere. `order`: micro-batches, longest first."""
    sizes, smallest = table.sizes.tolist(), int(table.sizes[-1])
    degrees = table.degrees.tolist()
    free = [FreeNodes(nodes) for _ in durations]
    groups: list[OpenGroup] = []
    group_of: list[int] = []
    open_groups: list[list[tuple[float, int]]] = [[] for _ in degrees]  # by shape: (seconds left, group), rising
    for size, item_seconds in zip(sizes, table.seconds.tolist(), strict=True):
        best, at, least = -1, -1, inf
        for shape, seconds in enumerate(item_seconds):
            if seconds == inf:
                continue
            candidates = open_groups[shape]
            i = bisect_left(candidates, (seconds, -1))
            while i < len(candidates) and groups[candidates[i][1]].tokens_left < size:
                i += 1
            if i < len(candidates):
                waste = (candidates[i][0] - seconds) * degrees[shape]
                if waste < least:
                    best, at, least = shape, i, waste
        if best >= 0:
            number = open_groups[best].pop(at)[1]
        else:
            opened = open_group(
                table,
                [(micro_batch, free[micro_batch], float(durations[micro_batch])) for micro_batch in order],
                item_seconds,
            )
            if opened is None:
                return None
            number, best = len(groups), opened.shape
            groups.append(opened)
        group = groups[number]
        group.seconds_left -= item_seconds[best]
        group.seconds_used += item_seconds[best]
        group.tokens_left -= size
        group_of.append(number)
        if group.tokens_left >= smallest:
            insort(open_groups[best], (group.seconds_left, number))
    return groups, group_of


def open_group(
    table: PackingTable, micro_batches: list[tuple[int, FreeNodes, float]], item_seconds: list[float]
) -> OpenGroup | None:
    """A new group for an item: longest micro-batch first, smallest degree that holds it; None when there is none.

    `micro_batches`: (number, its free ranks, seconds), longest first; `item_seconds`: by shape.
    """
    for micro_batch, free, span in micro_batches:
        for shape, seconds in enumerate(item_seconds):
            constant = float(table.constants[shape])
            if seconds > span - constant:
                continue
            first = free.place_group(shape, int(table.degrees[shape]))
            if first is not None:
                return OpenGroup(shape, micro_batch, first, span - constant, int(table.rooms[shape]), constant)
    return None
