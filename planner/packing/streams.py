"""Longest-first fill for ranks that meet once a step: given when all must be done, groups of ranks take micro-batch
after micro-batch, each rank as many as it finds time for (ByteScale, arXiv 2502.21231, section 5).

Longest sequences first, each into the open group where it leaves the least rank-time free. A group whose micro-batch is
full begins another one, which costs its constant again. A new group takes ranks that have none, of the smallest degree
that does; when there are none left, the wider group with most time left is broken up into narrower ones. When some
sequence finds no room, the time was too short.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from planner.costs.table import Table
from planner.packing.packed import Packed, PackedGroup
from planner.packing.places import Nodes


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
    room: int  # tokens in the last micro-batch
    batches: list[list[int]] = field(default_factory=list)  # rows of the table


class Free(NamedTuple):
    """Ranks of one node without a group."""

    first: int
    count: int
    left: float  # seconds


class Choice(NamedTuple):
    """A group that could take a sequence."""

    waste: float  # rank-seconds
    at: int  # in its shape's list
    shape: int
    renew: bool


class Streams:
    """The state of one fill."""

    def __init__(self, table: Table, nodes: Nodes, span: float, rules: Rules) -> None:
        self.table, self.nodes, self.rules = table, nodes, rules
        self.degrees, self.rooms = table.degrees.tolist(), table.rooms.tolist()
        self.constants: list[float] = table.constants.tolist()
        whole = zip(nodes.first.tolist(), nodes.size.tolist(), strict=True)
        self.free = [Free(first, count, span) for first, count in whole]
        self.streams: list[Stream] = []
        self.open: dict[int, list[tuple[float, int]]] = {}  # of each shape: (seconds left, stream), rising

    def take(self, item: int, size: int, takes: dict[int, float]) -> bool:
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
            if choice.renew:
                self.begin(self.streams[number])
        stream = self.streams[number]
        stream.left -= takes[stream.shape]
        stream.room -= min(size, stream.room)  # an item that is larger offloads what has no room
        stream.batches[-1].append(item)
        insort(self.open.setdefault(stream.shape, []), (stream.left, number))
        return True

    def best_open(self, size: int, takes: dict[int, float]) -> Choice | None:
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

    def too_dear(self, choice: Choice, takes: dict[int, float]) -> bool:
        cheapest = min(seconds * self.degrees[shape] for shape, seconds in takes.items())
        constant = min(self.constants[shape] * self.degrees[shape] for shape in takes)
        return takes[choice.shape] * self.degrees[choice.shape] - cheapest > self.rules.dear * constant

    def opened(self, takes: dict[int, float]) -> int | None:
        """A new group on free ranks: the smallest degree that does."""
        for shape, seconds in takes.items():
            place = self.carved(shape, seconds + self.constants[shape])
            if place:
                self.streams.append(Stream(shape, place.first, place.left, 0))
                self.begin(self.streams[-1])
                return len(self.streams) - 1
        return None

    def begin(self, stream: Stream) -> None:
        """Another micro-batch."""
        stream.left -= self.constants[stream.shape]
        stream.room = self.rooms[stream.shape]
        stream.batches.append([])

    def broken_up(self, takes: dict[int, float]) -> int | None:
        """A new group on ranks of a wider one, the one with most time left."""
        for shape, seconds in takes.items():
            needed = seconds + self.constants[shape]
            wider = [known[-1] for s, known in self.open.items() if known and self.degrees[s] > self.degrees[shape]]
            if wider and max(wider)[0] >= needed:
                left, number = max(wider)
                self.open[self.streams[number].shape].remove((left, number))
                self.release(self.streams[number])
                return self.opened({shape: seconds})
        return None

    def release(self, stream: Stream) -> None:
        """Its ranks are free, node by node."""
        first, end = stream.first, stream.first + self.degrees[stream.shape]
        for begin, size in zip(self.nodes.first.tolist(), self.nodes.size.tolist(), strict=True):
            low, high = max(first, begin), min(end, begin + size)
            if low < high:
                self.free.append(Free(low, high - low, stream.left))

    def carved(self, shape: int, needed: float) -> Free | None:
        """Free ranks for a group, with the time that all of them have left: within a node, or whole nodes side by side.

        Of the places with enough time the one with least.
        """
        degree = self.degrees[shape]
        nodes = range(int(self.nodes.begin[shape]), int(self.nodes.end[shape]))
        low, per_node = int(self.nodes.first[nodes[0]]), int(self.nodes.size[nodes[0]])
        high = int(self.nodes.first[nodes[-1]] + self.nodes.size[nodes[-1]])
        enough = [free for free in self.free if free.left >= needed and low <= free.first < high]
        if degree <= per_node:
            fitting = [free for free in enough if free.count >= degree]
            return self.cut([min(fitting, key=lambda f: (f.left, f.count, f.first))], degree) if fitting else None
        whole = sorted(free for free in enough if free.count == per_node)
        count = -(-degree // per_node)
        for start in range(len(whole) - count + 1):
            run = whole[start : start + count]
            if run[-1].first - run[0].first == (count - 1) * per_node:
                return self.cut(run, degree)
        return None

    def cut(self, run: list[Free], degree: int) -> Free:
        """Take the first `degree` ranks of a run of free ones; the others stay free."""
        for free in run:
            self.free.remove(free)
        first, end, last = run[0].first, run[0].first + degree, run[-1]
        if last.first + last.count > end:
            self.free.append(Free(end, last.first + last.count - end, last.left))
        return Free(first, degree, min(free.left for free in run))


def better(best: Choice | None, other: Choice) -> Choice:
    return other if best is None or other < best else best


def fill_streams(table: Table, nodes: Nodes, span: float, rules: Rules, order: list[int]) -> Packed | None:
    """A packing that is done within `span` seconds, or None. `order`: rows of the table, about longest first."""
    state = Streams(table, nodes, span, rules)
    sizes, seconds = table.sizes.tolist(), table.seconds.tolist()
    for item in order:
        takes = {shape: s for shape, s in enumerate(seconds[item]) if s < inf}
        if not state.take(item, sizes[item], takes):
            return None
    return rows_of(table, state.streams)


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
