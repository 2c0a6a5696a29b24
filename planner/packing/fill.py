"""Longest-first fill: given the maximum duration of each micro-batch, assign sequences to groups of chosen degree.

Sequences are taken longest first, each into the open group where it leaves the least rank-time free (best fit
decreasing). When none has room, a new group is opened: the smallest degree that holds the sequence in memory and in
time, in the longest micro-batch that still has free ranks. Long sequences take more time per token of memory, so they
go where there is time and leave the short micro-batches to the tokens. When some sequence fits nowhere, the given
makespans were too short.

Compiled (fill.c) it takes 33 µs for 512 sequences and 4.4 ms for 32,768; plain Python takes 24 and 79 times as long
(measured, 2-core x86-64). The results are the same, and where the library was not built, fill_python.py does it.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.costs import Floats, Ints, PackingTable
from planner.packing.fill_python import fill_groups
from planner.packing.packed_groups import PackedGroup, Packing
from planner.packing.rank_placement import NodeTable

LIBRARY_PATH = Path(__file__).with_name("libfill.so")


class Shapes(ctypes.Structure):
    """The struct `Shapes` of fill.c; pointers are addresses of numpy arrays."""

    _fields_ = [
        ("shapes", ctypes.c_int64),
        ("nodes", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("degree", "room", "first_node", "end_node", "constant")),
        *((name, ctypes.c_void_p) for name in ("node_first", "node_size")),
    ]


def load_library() -> ctypes.CDLL | None:
    """The compiled fill.c with its signature declared; None where it was not built with the package."""
    try:
        library = ctypes.CDLL(str(LIBRARY_PATH))
    except OSError:
        return None
    number, real, arrays, shapes = ctypes.c_int64, ctypes.c_double, [ctypes.c_void_p] * 4, ctypes.POINTER(Shapes)
    library.planner_fill.restype = library.planner_fill_streams.restype = number
    library.planner_fill.argtypes = [number, number, *arrays, shapes, *arrays, ctypes.c_void_p]
    library.planner_fill_streams.argtypes = [number, *arrays, real, real, real, number, shapes, *arrays]
    return library


FILL_LIBRARY = load_library()


@dataclass(frozen=True, slots=True)
class PackingArrays:
    """A packing as arrays; `to_packing` converts it, which takes longer than the fill itself."""

    table: PackingTable
    micro_batches: int
    group_of: Ints  # (items,) index of each item's group
    shape: Ints  # (groups,) index into the problem's shapes
    micro_batch: Ints  # (groups,)
    first_rank: Ints  # (groups,) first rank
    seconds: Floats  # (groups,) seconds, constants included

    def makespans(self) -> Floats:
        """Seconds of every micro-batch, (micro_batches,); 0 for empty ones."""
        makespans = np.zeros(self.micro_batches)
        np.maximum.at(makespans, self.micro_batch, self.seconds)
        return makespans

    def step_seconds(self) -> float:
        """Seconds of the step: all makespans and constants."""
        problem, used_micro_batches = self.table.problem, len(np.unique(self.micro_batch))
        return float(self.makespans().sum()) + used_micro_batches * problem.micro_batch_seconds + problem.step_seconds

    def to_packing(self) -> Packing:
        """The packing as micro-batches of groups; empty micro-batches are dropped."""
        items_of: list[list[int]] = [[] for _ in self.shape]
        for item, group in zip(self.table.items.tolist(), self.group_of.tolist(), strict=True):
            items_of[group].append(item)
        micro_batches: list[list[PackedGroup]] = [[] for _ in range(self.micro_batches)]
        for shape, micro_batch, first, items in zip(
            self.shape.tolist(), self.micro_batch.tolist(), self.first_rank.tolist(), items_of, strict=True
        ):
            micro_batches[micro_batch].append(PackedGroup(shape, tuple(items), first))
        return tuple(tuple(micro_batch) for micro_batch in micro_batches if micro_batch)


def fill(table: PackingTable, nodes: NodeTable, durations: Floats) -> PackingArrays | None:
    """A packing in micro-batches of at most `durations` seconds, (micro_batches,); None when an item does not fit."""
    order = np.lexsort((np.arange(len(durations)), -durations))  # longest first
    return (
        fill_compiled(table, nodes, durations, order)
        if FILL_LIBRARY
        else fill_in_python(table, nodes, durations, order)
    )


def fill_in_python(table: PackingTable, nodes: NodeTable, durations: Floats, order: Ints) -> PackingArrays | None:
    """The fill in plain Python, with the result of the compiled one. `order`: micro-batches, longest first."""
    filled = fill_groups(table, nodes, durations, order.tolist())
    if filled is None:
        return None
    groups, group_of = filled
    shape = np.array([group.shape for group in groups], dtype=np.int64)
    micro_batch = np.array([group.micro_batch for group in groups], dtype=np.int64)
    first = np.array([group.first_rank for group in groups], dtype=np.int64)
    used = np.array([group.seconds_used for group in groups])
    return PackingArrays(table, len(durations), np.array(group_of, dtype=np.int64), shape, micro_batch, first, used)


def fill_compiled(table: PackingTable, nodes: NodeTable, durations: Floats, order: Ints) -> PackingArrays | None:
    """The compiled fill, which releases the GIL. Raises MemoryError."""
    assert FILL_LIBRARY
    items = len(table.sizes)
    group_of, shape, micro_batch, first = (np.empty(items, dtype=np.int64) for _ in range(4))
    used = np.empty(items)
    durations, order = np.ascontiguousarray(durations, np.float64), np.ascontiguousarray(order, np.int64)
    inputs = map(address_of, (table.sizes, table.seconds, durations, order))
    outputs = map(address_of, (group_of, shape, micro_batch, first, used))
    shapes = shapes_of(table, nodes)
    count = FILL_LIBRARY.planner_fill(items, len(durations), *inputs, ctypes.byref(shapes), *outputs)
    if count == -2:
        raise MemoryError
    if count < 0:
        return None
    return PackingArrays(
        table, len(durations), group_of, shape[:count], micro_batch[:count], first[:count], used[:count]
    )


def shapes_of(table: PackingTable, nodes: NodeTable) -> Shapes:
    """The shapes and nodes of a problem, for C."""
    of_shapes = (table.degrees, table.rooms, nodes.first_node, nodes.end_node, table.constants)
    return Shapes(len(table.degrees), len(nodes.size), *map(address_of, (*of_shapes, nodes.first_rank, nodes.size)))


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's data, for C."""
    return array.ctypes.data
