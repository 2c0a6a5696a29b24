"""The fill in plain Python: what fill.c does, line by line, for machines without its compiled form."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from math import inf

from planner.costs.step.table import Floats, Table
from planner.packing.places import Nodes, place


@dataclass(slots=True)
class Group:
    """An open group."""

    shape: int
    row: int
    first: int  # rank
    left: float  # seconds
    room: int  # tokens
    used: float  # seconds, the constant included


def fill_plain(table: Table, nodes: Nodes, spans: Floats, row_order: list[int]) -> tuple[list[Group], list[int]] | None:
    """Groups, and the group of every item; None when some item finds no room."""
    sizes, smallest = table.sizes.tolist(), int(table.sizes[-1])
    degrees = table.degrees.tolist()
    free = [nodes.size.tolist() for _ in spans]
    groups: list[Group] = []
    group_of: list[int] = []
    lists: list[list[tuple[float, int]]] = [[] for _ in degrees]  # of each shape: (seconds left, group), rising
    for size, takes in zip(sizes, table.seconds.tolist(), strict=True):
        best, at, least = -1, -1, inf
        for shape, seconds in enumerate(takes):
            if seconds == inf:
                continue
            known = lists[shape]
            i = bisect_left(known, (seconds, -1))
            while i < len(known) and groups[known[i][1]].room < size:
                i += 1
            if i < len(known):
                rest = (known[i][0] - seconds) * degrees[shape]
                if rest < least:
                    best, at, least = shape, i, rest
        if best >= 0:
            number = lists[best].pop(at)[1]
        else:
            opened = open_group(table, nodes, [(row, free[row], float(spans[row])) for row in row_order], takes)
            if opened is None:
                return None
            number, best = len(groups), opened.shape
            groups.append(opened)
        group = groups[number]
        group.left -= takes[best]
        group.used += takes[best]
        group.room -= size
        group_of.append(number)
        if group.room >= smallest:
            insort(lists[best], (group.left, number))
    return groups, group_of


def open_group(
    table: Table, nodes: Nodes, rows: list[tuple[int, list[int], float]], takes: list[float]
) -> Group | None:
    """A new group for an item that takes so long on each shape: longest micro-batch first, smallest degree that does.

    A row is its number, the free ranks of its nodes and its seconds.
    """
    for row, free, span in rows:
        for shape, seconds in enumerate(takes):
            constant = float(table.constants[shape])
            if seconds > span - constant:
                continue
            first = place(nodes, shape, int(table.degrees[shape]), free)
            if first is not None:
                return Group(shape, row, first, span - constant, int(table.rooms[shape]), constant)
    return None
