"""Longest-first fill for ranks that meet once a step: given when all must be done, groups of ranks take micro-batch
after micro-batch, each rank as many as it finds time for (ByteScale, arXiv 2502.21231, section 5).

Longest sequences first, each into the open group where it leaves the least rank-time free. A group whose micro-batches
are full begins another one, which costs its constant again. A new group takes ranks that have none, of the smallest
degree that does; when there are none left, the wider group with most time left is broken up into narrower ones. When
some sequence finds no room, the time was too short.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from planner.costs.step.table import Table
from planner.packing.idle import Idle
from planner.packing.packed import Packed, PackedGroup

Takes = dict[int, float]  # shape → seconds that a sequence adds to a group of it, the cheapest first


class Rules(NamedTuple):
    """What is a matter of taste; the search tries several."""

    renewal: float = 2.0  # what another micro-batch counts for, in its constants
    dear: float = 2.0  # constants that a sequence may cost beyond its cheapest shape before a new group opens for it
    open_first: bool = False  # a new group before another micro-batch in an open one


@dataclass(slots=True)
class Stream:
    """A group, from when its ranks became free."""

    shape: int
    first: int  # rank
    left: float  # seconds
    batches: list[list[int]] = field(default_factory=list)  # rows of the table
    rooms: list[int] = field(default_factory=list)  # tokens left in each
    room: int = 0  # the most of them

    def begin(self, constant: float, room: int) -> None:
        """Another micro-batch."""
        self.left -= constant
        self.batches.append([])
        self.rooms.append(room)
        self.room = room

    def put(self, item: int, size: int, seconds: float) -> None:
        """Into a micro-batch that was just begun, else the one that it fills best.

        What is larger than any takes a whole one, and offloads the rest.
        """
        fitting = [(room, at) for at, room in enumerate(self.rooms) if room >= size]
        at = min(fitting)[1] if fitting and self.batches[-1] else len(self.rooms) - 1
        self.batches[at].append(item)
        self.rooms[at] -= min(size, self.rooms[at])
        self.room = max(self.rooms)
        self.left -= seconds


class Choice(NamedTuple):
    """A group that could take a sequence."""

    waste: float  # rank-seconds
    at: int  # in its shape's list
    shape: int
    renew: bool


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
        self.open: dict[int, list[tuple[float, int]]] = {}  # of each shape: (seconds left, stream), rising

    def take(self, item: int, size: int, takes: Takes) -> bool:
        """Give a sequence, which takes so long on each shape, to some group."""
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

    def best_open(self, size: int, takes: Takes) -> Choice | None:
        """The open group where it leaves the least rank-time free, another micro-batch counted in."""
        best = None
        for shape, known in self.open.items():
            if shape not in takes:
                continue
            seconds, constant, degree = takes[shape], self.constants[shape], self.degrees[shape]
            at = bisect_left(known, (seconds, -1))
            while at < len(known) and self.streams[known[at][1]].room < size:
                at += 1
            if at < len(known):
                best = better(best, Choice((known[at][0] - seconds) * degree, at, shape, False))
            at = bisect_left(known, (seconds + constant, -1))
            if at < len(known):
                rest = known[at][0] - seconds - constant + self.rules.renewal * constant
                best = better(best, Choice(rest * degree, at, shape, True))
        return best

    def too_dear(self, choice: Choice, takes: Takes) -> bool:
        cheapest = min(seconds * self.degrees[shape] for shape, seconds in takes.items())
        constant = min(self.constants[shape] * self.degrees[shape] for shape in takes)
        return takes[choice.shape] * self.degrees[choice.shape] - cheapest > self.rules.dear * constant

    def opened(self, takes: Takes) -> int | None:
        """A new group on free ranks: the cheapest shape that does."""
        for shape, seconds in takes.items():
            place = self.idle[self.pools[shape]].carve(self.degrees[shape], seconds + self.constants[shape])
            if place:
                self.streams.append(Stream(shape, place.first, place.left))
                self.streams[-1].begin(self.constants[shape], self.rooms[shape])
                return len(self.streams) - 1
        return None

    def broken_up(self, takes: Takes) -> int | None:
        """A new group on ranks of a wider one, the one with most time left."""
        for shape, seconds in takes.items():
            wider = [known[-1] for other, known in self.open.items() if known and self.is_wider(other, shape)]
            if wider and max(wider)[0] >= seconds + self.constants[shape]:
                left, number = max(wider)
                ended = self.streams[number]
                self.open[ended.shape].remove((left, number))
                self.idle[self.pools[shape]].give_back(ended.first, self.degrees[ended.shape], left)
                return self.opened({shape: seconds})
        return None

    def is_wider(self, other: int, shape: int) -> bool:
        return self.pools[other] == self.pools[shape] and self.degrees[other] > self.degrees[shape]


def better(best: Choice | None, other: Choice) -> Choice:
    return other if best is None or other < best else best


def takes_of(table: Table) -> list[Takes]:
    """What every row of the table takes on the shapes that may hold it, the cheapest in rank-seconds first."""
    cheapest_first = np.argsort(table.areas, axis=1, kind="stable").tolist()
    rows = zip(cheapest_first, table.seconds.tolist(), strict=True)
    return [{shape: seconds[shape] for shape in shapes if seconds[shape] < inf} for shapes, seconds in rows]


def fill_streams(table: Table, takes: list[Takes], span: float, rules: Rules, order: list[int]) -> Packed | None:
    """A packing that is done within `span` seconds, or None. `order`: rows of the table, about longest first."""
    state, sizes = Streams(table, span, rules), table.sizes.tolist()
    if all(state.take(item, sizes[item], takes[item]) for item in order):
        return rows_of(table, state.streams)
    return None


def rows_of(table: Table, streams: list[Stream]) -> Packed:
    """Micro-batches in rows: every rank meets its own in the order in which its groups were made."""
    rows: list[list[PackedGroup]] = []
    level: dict[int, int] = {}
    items = table.items.tolist()
    for stream in streams:
        ranks = range(stream.first, stream.first + int(table.degrees[stream.shape]))
        base = max(level.get(rank, 0) for rank in ranks)
        for number, batch in enumerate(stream.batches):
            while len(rows) <= base + number:
                rows.append([])
            rows[base + number].append(PackedGroup(stream.shape, tuple(items[i] for i in batch), stream.first))
        level.update(dict.fromkeys(ranks, base + len(stream.batches)))
    return tuple(tuple(row) for row in rows)
