"""The fill in plain Python: what fill.c does, line by line, for machines without the compiled library."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from math import inf

from planner.costs.step.table import Floats, Table
from planner.packing.places import Nodes, place


@dataclass(slots=True)
class Group:
    """A group that can still take items."""

    shape: int
    row: int
    first: int  # first rank
    left: float  # seconds until its micro-batch is full
    room: int  # tokens that still fit
    used: float  # seconds, the constant included


def fill_plain(table: Table, nodes: Nodes, spans: Floats, order: list[int]) -> tuple[list[Group], list[int]] | None:
    """Groups, and the group of every item; None when some item fits nowhere. `order`: micro-batches, longest first."""
    sizes, smallest = table.sizes.tolist(), int(table.sizes[-1])
    degrees = table.degrees.tolist()
    free = [nodes.size.tolist() for _ in spans]
    groups: list[Group] = []
    group_of: list[int] = []
    open_groups: list[list[tuple[float, int]]] = [[] for _ in degrees]  # by shape: (seconds left, group), rising
    for size, item_seconds in zip(sizes, table.seconds.tolist(), strict=True):
        best, at, least = -1, -1, inf
        for shape, seconds in enumerate(item_seconds):
            if seconds == inf:
                continue
            candidates = open_groups[shape]
            i = bisect_left(candidates, (seconds, -1))
            while i < len(candidates) and groups[candidates[i][1]].room < size:
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
                nodes,
                [(micro_batch, free[micro_batch], float(spans[micro_batch])) for micro_batch in order],
                item_seconds,
            )
            if opened is None:
                return None
            number, best = len(groups), opened.shape
            groups.append(opened)
        group = groups[number]
        group.left -= item_seconds[best]
        group.used += item_seconds[best]
        group.room -= size
        group_of.append(number)
        if group.room >= smallest:
            insort(open_groups[best], (group.left, number))
    return groups, group_of


def open_group(
    table: Table, nodes: Nodes, micro_batches: list[tuple[int, list[int], float]], item_seconds: list[float]
) -> Group | None:
    """A new group for an item: longest micro-batch first, smallest degree that holds it; None when there is none.

    `micro_batches`: (number, free ranks of each node, seconds), longest first; `item_seconds`: by shape.
    """
    for micro_batch, free, span in micro_batches:
        for shape, seconds in enumerate(item_seconds):
            constant = float(table.constants[shape])
            if seconds > span - constant:
                continue
            first = place(nodes, shape, int(table.degrees[shape]), free)
            if first is not None:
                return Group(shape, micro_batch, first, span - constant, int(table.rooms[shape]), constant)
    return None
