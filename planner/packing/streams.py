"""Longest-first fill where ranks synchronise once per step: within a time limit for the step, each group of ranks runs
micro-batch after micro-batch, as many as fit (ByteScale, arXiv 2502.21231, section 5).

Sequences are taken longest first, each into the open group where it leaves the least rank-time free. A group whose
micro-batches are full begins another one, which costs its constant again. A new group takes free ranks, with the
cheapest shape that fits; when there are none, the wider group with most time left is split into narrower ones. When
some sequence fits nowhere, the time limit was too short.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from planner.costs.step.table import Table
from planner.packing.idle import Idle
from planner.packing.packed import Packed, PackedGroup

Takes = dict[int, float]  # shape → seconds that a sequence adds to a group of that shape, the cheapest shape first


class Rules(NamedTuple):
    """Free parameters of the fill, over which the search varies."""

    renewal: float = 2.0  # weight of the constant of a new micro-batch when groups are compared
    dear: float = 2.0  # excess over the cheapest shape, in constants, above which a new group is opened
    open_first: bool = False  # open a new group rather than begin a micro-batch in an open one


@dataclass(slots=True)
class Stream:
    """A group of ranks and its micro-batches, from when its ranks became free."""

    shape: int
    first: int  # first rank
    left: float  # seconds
    batches: list[list[int]] = field(default_factory=list)  # row of the table of each item, by micro-batch
    rooms: list[int] = field(default_factory=list)  # tokens left in each micro-batch
    room: int = 0  # the largest of these

    def begin(self, constant: float, room: int) -> None:
        """Begin another micro-batch."""
        self.left -= constant
        self.batches.append([])
        self.rooms.append(room)
        self.room = room

    def put(self, item: int, size: int, seconds: float) -> None:
        """Add an item to a micro-batch that was just begun, otherwise to the one that it fills best.

        An item larger than any micro-batch takes a whole one and offloads the rest.
        """
        fitting = [(room, at) for at, room in enumerate(self.rooms) if room >= size]
        at = min(fitting)[1] if fitting and self.batches[-1] else len(self.rooms) - 1
        self.batches[at].append(item)
        self.rooms[at] -= min(size, self.rooms[at])
        self.room = max(self.rooms)
        self.left -= seconds


class GroupChoice(NamedTuple):
    """An open group that could take a sequence; the least waste compares first."""

    waste: float  # rank-seconds
    at: int  # index in the list of its shape
    shape: int
    renew: bool  # whether the group begins another micro-batch for it


class Streams:
    """The state of one fill."""

    def __init__(self, table: Table, span: float, rules: Rules) -> None:
        self.rules = rules
        self.degrees: list[int] = table.degrees.tolist()
        self.rooms: list[int] = table.rooms.tolist()
        self.constants: list[float] = table.constants.tolist()
        self.pools = [shape.pool for shape in table.problem.shapes]
        self.idle = [Idle(pool, span) for pool in table.problem.pools]
        self.streams: list[Stream] = []
        self.open: dict[int, list[tuple[float, int]]] = {}  # by shape: (seconds left, stream), rising

    def take(self, item: int, size: int, takes: Takes) -> bool:
        """Assign a sequence to a group; returns False when it fits nowhere."""
        choice = self.best_open(size, takes)
        number = None
        if choice is None or (choice.renew and self.rules.open_first) or self.too_dear(choice, takes):
            number = self.opened(takes)
        if number is None and choice is None:
            number = self.broken_up(takes)
        if number is None:
            if choice is None:
                return False
            number = self.open[choice.shape].pop(choice.at)[1]
            if self.streams[number].room < size:
                self.streams[number].begin(self.constants[choice.shape], self.rooms[choice.shape])
        stream = self.streams[number]
        stream.put(item, size, takes[stream.shape])
        insort(self.open.setdefault(stream.shape, []), (stream.left, number))
        return True

    def best_open(self, size: int, takes: Takes) -> GroupChoice | None:
        """The open group where a sequence leaves the least rank-time free, the cost of a new micro-batch included."""
        best = None
        for shape, open_groups in self.open.items():
            if shape not in takes:
                continue
            seconds, constant, degree = takes[shape], self.constants[shape], self.degrees[shape]
            at = bisect_left(open_groups, (seconds, -1))
            while at < len(open_groups) and self.streams[open_groups[at][1]].room < size:
                at += 1
            if at < len(open_groups):
                best = better(best, GroupChoice((open_groups[at][0] - seconds) * degree, at, shape, False))
            at = bisect_left(open_groups, (seconds + constant, -1))
            if at < len(open_groups):
                waste = open_groups[at][0] - seconds - constant + self.rules.renewal * constant
                best = better(best, GroupChoice(waste * degree, at, shape, True))
        return best

    def too_dear(self, choice: GroupChoice, takes: Takes) -> bool:
        """Whether the chosen shape costs too many rank-seconds beyond the cheapest."""
        cheapest = min(seconds * self.degrees[shape] for shape, seconds in takes.items())
        constant = min(self.constants[shape] * self.degrees[shape] for shape in takes)
        return takes[choice.shape] * self.degrees[choice.shape] - cheapest > self.rules.dear * constant

    def opened(self, takes: Takes) -> int | None:
        """Index of a new group on free ranks, of the cheapest shape that fits; None if none does."""
        for shape, seconds in takes.items():
            segment = self.idle[self.pools[shape]].carve(self.degrees[shape], seconds + self.constants[shape])
            if segment:
                self.streams.append(Stream(shape, segment.first, segment.left))
                self.streams[-1].begin(self.constants[shape], self.rooms[shape])
                return len(self.streams) - 1
        return None

    def broken_up(self, takes: Takes) -> int | None:
        """Index of a new group on ranks of a wider one, the one with most time left; None if none fits."""
        for shape, seconds in takes.items():
            wider = [
                open_groups[-1]
                for other, open_groups in self.open.items()
                if open_groups and self.is_wider(other, shape)
            ]
            if wider and max(wider)[0] >= seconds + self.constants[shape]:
                left, number = max(wider)
                ended = self.streams[number]
                self.open[ended.shape].remove((left, number))
                self.idle[self.pools[shape]].give_back(ended.first, self.degrees[ended.shape], left)
                return self.opened({shape: seconds})
        return None

    def is_wider(self, other: int, shape: int) -> bool:
        return self.pools[other] == self.pools[shape] and self.degrees[other] > self.degrees[shape]


def better(best: GroupChoice | None, other: GroupChoice) -> GroupChoice:
    return other if best is None or other < best else best


def takes_of(table: Table) -> list[Takes]:
    """Seconds of every row of the table on the shapes that may hold it, the cheapest in rank-seconds first."""
    cheapest_first = np.argsort(table.areas, axis=1, kind="stable").tolist()
    table_rows = zip(cheapest_first, table.seconds.tolist(), strict=True)
    return [{shape: seconds[shape] for shape in shapes if seconds[shape] < inf} for shapes, seconds in table_rows]


def fill_streams(table: Table, takes: list[Takes], span: float, rules: Rules, order: list[int]) -> Packed | None:
    """A packing that is done within `span` seconds, or None. `order`: rows of the table, roughly longest first."""
    state, sizes = Streams(table, span, rules), table.sizes.tolist()
    if all(state.take(item, sizes[item], takes[item]) for item in order):
        return micro_batches_of(table, state.streams)
    return None


def micro_batches_of(table: Table, streams: list[Stream]) -> Packed:
    """The packing of these streams: every rank runs its micro-batches in the order in which its groups were opened."""
    micro_batches: list[list[PackedGroup]] = []
    next_index: dict[int, int] = {}
    items = table.items.tolist()
    for stream in streams:
        ranks = range(stream.first, stream.first + int(table.degrees[stream.shape]))
        start = max(next_index.get(rank, 0) for rank in ranks)
        for number, batch in enumerate(stream.batches):
            while len(micro_batches) <= start + number:
                micro_batches.append([])
            micro_batches[start + number].append(
                PackedGroup(stream.shape, tuple(items[i] for i in batch), stream.first)
            )
        next_index.update(dict.fromkeys(ranks, start + len(stream.batches)))
    return tuple(tuple(micro_batch) for micro_batch in micro_batches)
