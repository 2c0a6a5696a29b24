"""Longest-first fill: given how long each micro-batch may last, put sequences into groups of their own degree.

Longest sequences first, each into the open group where it leaves the least rank-time free (best fit decreasing); when
none has room, a new group of the smallest degree that holds the sequence in memory and in time, in the longest
micro-batch that still has ranks: long sequences take more time per token of memory, so they go where time is plenty and
leave the short micro-batches to the tokens. When some sequence finds no room, the makespans were too tight.

Compiled (fill.c) it takes 33 µs for 512 sequences and 4.4 ms for 32,768, in plain Python (plain.py) 24 and 79 times as
long (measured, 2-core x86-64); the result is the same.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.costs.step.table import Floats, Ints, Table
from planner.packing.native import LIB, Shapes
from planner.packing.packed import Packed, PackedGroup
from planner.packing.places import Nodes
from planner.packing.plain import fill_plain


@dataclass(frozen=True, slots=True)
class Filled:
    """A packing as arrays; `packed` makes it readable, which takes longer than making it."""

    table: Table
    rows: int
    group_of: Ints  # (items,)
    shape: Ints  # (groups,)
    row: Ints
    first: Ints
    used: Floats  # seconds, constants included

    def makespans(self) -> Floats:
        """Seconds of every micro-batch; 0 of those that nothing is in."""
        lasts = np.zeros(self.rows)
        np.maximum.at(lasts, self.row, self.used)
        return lasts

    def worth(self) -> float:
        """Seconds of the step."""
        problem, opened = self.table.problem, len(np.unique(self.row))
        return float(self.makespans().sum()) + opened * problem.row_seconds + problem.step_seconds

    def packed(self) -> Packed:
        held: list[list[int]] = [[] for _ in self.shape]
        for item, group in zip(self.table.items.tolist(), self.group_of.tolist(), strict=True):
            held[group].append(item)
        rows: list[list[PackedGroup]] = [[] for _ in range(self.rows)]
        for shape, row, first, items in zip(
            self.shape.tolist(), self.row.tolist(), self.first.tolist(), held, strict=True
        ):
            rows[row].append(PackedGroup(shape, tuple(items), first))
        return tuple(tuple(row) for row in rows if row)


def fill(table: Table, nodes: Nodes, spans: Floats) -> Filled | None:
    """A packing whose micro-batches last at most `spans` seconds, or None."""
    order = np.lexsort((np.arange(len(spans)), -spans))  # longest first
    return fill_native(table, nodes, spans, order) if LIB else fill_slowly(table, nodes, spans, order)


def fill_slowly(table: Table, nodes: Nodes, spans: Floats, row_order: Ints) -> Filled | None:
    done = fill_plain(table, nodes, spans, row_order.tolist())
    if done is None:
        return None
    groups, group_of = done
    columns = ([getattr(group, name) for group in groups] for name in ("shape", "row", "first"))
    shape, row, first = (np.array(column, dtype=np.int64) for column in columns)
    used = np.array([group.used for group in groups])
    return Filled(table, len(spans), np.array(group_of, dtype=np.int64), shape, row, first, used)


def fill_native(table: Table, nodes: Nodes, spans: Floats, row_order: Ints) -> Filled | None:
    """The compiled fill; it runs without the interpreter's lock."""
    assert LIB
    items = len(table.sizes)
    group_of, shape, row, first = (np.empty(items, dtype=np.int64) for _ in range(4))
    used = np.empty(items)
    spans, row_order = np.ascontiguousarray(spans, np.float64), np.ascontiguousarray(row_order, np.int64)
    shapes = Shapes(
        len(table.degrees),
        len(nodes.size),
        *map(address, (table.degrees, table.rooms, nodes.begin, nodes.end, table.constants, nodes.first, nodes.size)),
    )
    given = map(address, (table.sizes, table.seconds, spans, row_order))
    found = map(address, (group_of, shape, row, first, used))
    count = LIB.planner_fill(items, len(spans), *given, ctypes.byref(shapes), *found)
    if count == -2:
        raise MemoryError
    if count < 0:
        return None
    return Filled(table, len(spans), group_of, shape[:count], row[:count], first[:count], used[:count])


def address(array: NDArray[Any]) -> int:
    return array.ctypes.data
