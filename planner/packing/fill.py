"""Longest-first fill: given the maximum duration of each micro-batch, assign sequences to groups of chosen degree.

Sequences are taken longest first, each into the open group where it leaves the least rank-time free (best fit
decreasing). When none has room, a new group is opened: the smallest degree that holds the sequence in memory and in
time, in the longest micro-batch that still has free ranks. Long sequences take more time per token of memory, so they
go where there is time and leave the short micro-batches to the tokens. When some sequence fits nowhere, the given
makespans were too short.

Compiled (fill.c) it takes 33 µs for 512 sequences and 4.4 ms for 32,768; plain Python takes 24 and 79 times as long
(measured, 2-core x86-64). The results are the same.
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
    """A packing as arrays; `to_packing` converts it, which takes longer than the fill itself."""

    table: Table
    rows: int
    group_of: Ints  # (items,) index of each item's group
    shape: Ints  # (groups,) index into the problem's shapes
    row: Ints  # (groups,)
    first: Ints  # (groups,) first rank
    used: Floats  # (groups,) seconds, constants included

    def makespans(self) -> Floats:
        """Seconds of every micro-batch, (micro_batches,); 0 for empty ones."""
        makespans = np.zeros(self.rows)
        np.maximum.at(makespans, self.row, self.used)
        return makespans

    def worth(self) -> float:
        """Seconds of the step: all makespans and constants."""
        problem, used_micro_batches = self.table.problem, len(np.unique(self.row))
        return float(self.makespans().sum()) + used_micro_batches * problem.row_seconds + problem.step_seconds

    def packed(self) -> Packed:
        """The same packing as micro-batches of groups; empty micro-batches are dropped."""
        items_of: list[list[int]] = [[] for _ in self.shape]
        for item, group in zip(self.table.items.tolist(), self.group_of.tolist(), strict=True):
            items_of[group].append(item)
        micro_batches: list[list[PackedGroup]] = [[] for _ in range(self.rows)]
        for shape, micro_batch, first, items in zip(
            self.shape.tolist(), self.row.tolist(), self.first.tolist(), items_of, strict=True
        ):
            micro_batches[micro_batch].append(PackedGroup(shape, tuple(items), first))
        return tuple(tuple(micro_batch) for micro_batch in micro_batches if micro_batch)


def fill(table: Table, nodes: Nodes, spans: Floats) -> Filled | None:
    """A packing with micro-batches of at most `spans` seconds, (micro_batches,); None when some item does not fit."""
    order = np.lexsort((np.arange(len(spans)), -spans))  # longest first
    return fill_native(table, nodes, spans, order) if LIB else fill_slowly(table, nodes, spans, order)


def fill_slowly(table: Table, nodes: Nodes, spans: Floats, order: Ints) -> Filled | None:
    """The fill in plain Python, with the result of the compiled one. `order`: micro-batches, longest first."""
    filled = fill_plain(table, nodes, spans, order.tolist())
    if filled is None:
        return None
    groups, group_of = filled
    shape = np.array([group.shape for group in groups], dtype=np.int64)
    micro_batch = np.array([group.row for group in groups], dtype=np.int64)
    first = np.array([group.first for group in groups], dtype=np.int64)
    used = np.array([group.used for group in groups])
    return Filled(table, len(spans), np.array(group_of, dtype=np.int64), shape, micro_batch, first, used)


def fill_native(table: Table, nodes: Nodes, spans: Floats, order: Ints) -> Filled | None:
    """The compiled fill, which releases the GIL. Raises MemoryError."""
    assert LIB
    items = len(table.sizes)
    group_of, shape, micro_batch, first = (np.empty(items, dtype=np.int64) for _ in range(4))
    used = np.empty(items)
    spans, order = np.ascontiguousarray(spans, np.float64), np.ascontiguousarray(order, np.int64)
    shapes = Shapes(
        len(table.degrees),
        len(nodes.size),
        *map(
            address_of, (table.degrees, table.rooms, nodes.begin, nodes.end, table.constants, nodes.first, nodes.size)
        ),
    )
    inputs = map(address_of, (table.sizes, table.seconds, spans, order))
    outputs = map(address_of, (group_of, shape, micro_batch, first, used))
    count = LIB.planner_fill(items, len(spans), *inputs, ctypes.byref(shapes), *outputs)
    if count == -2:
        raise MemoryError
    if count < 0:
        return None
    return Filled(table, len(spans), group_of, shape[:count], micro_batch[:count], first[:count], used[:count])


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's data, for C."""
    return array.ctypes.data
