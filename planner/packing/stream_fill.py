"""Longest-first fill where ranks synchronise once per step: within a time limit for the step, each group of ranks runs
micro-batch after micro-batch, as many as fit (ByteScale, arXiv 2502.21231, section 5).

Sequences are taken longest first, each into the open group where it leaves the least rank-time free. A group whose
micro-batches are full begins another one, which costs its constant again. A new group takes free ranks, with the
cheapest shape that fits; when there are none, the wider group with most time left is split into narrower ones. When
some sequence fits nowhere, the time limit was too short.

A group takes some neighbouring ranks of one node, or whole nodes side by side. Free ranks are kept as segments of a
node, each with the seconds for which it stays free. Two summary numbers reject most requests that cannot be met without
a search.

fill.c is its compiled twin, with the same results; where the library was not built, `plain_streams` does it.
"""

import ctypes
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from planner.costs import Ints, PackingTable, RankPool
from planner.packing.fill import FILL_LIBRARY, address_of, shapes_of
from planner.packing.packed_groups import PackedGroup, Packing
from planner.packing.rank_placement import NodeTable


class RankSegment(NamedTuple):
    """Neighbouring free ranks of one node."""

    first: int
    ranks: int  # how many
    seconds_left: float  # seconds


class FreeRanks:
    """Free ranks of a pool, as segments of its nodes."""

    def __init__(self, pool: RankPool, span: float) -> None:
        end = pool.first + pool.ranks
        firsts = range(pool.first, end, pool.per_node)
        self.per_node = min(pool.per_node, pool.ranks)
        # Ranks of each node, by its first rank.
        self.node_sizes = {first: min(pool.per_node, end - first) for first in firsts}
        self.segments = [RankSegment(first, size, span) for first, size in self.node_sizes.items()]
        self.update_summary()

    def update_summary(self) -> None:
        """Update the longest time left of any segment, and the ranks of all segments that start a node."""
        self.longest_left = max((segment.seconds_left for segment in self.segments), default=-1.0)
        self.ranks_at_node_starts = sum(segment.ranks for segment in self.segments if segment.first in self.node_sizes)

    def allocate(self, degree: int, needed: float) -> RankSegment | None:
        """Ranks for a group that needs so many seconds, with the time that all have left; None if there are none."""
        if needed > self.longest_left:
            return None
        if degree > self.per_node:
            return (
                self.take_first(self.adjacent_segments(degree, needed), degree)
                if degree <= self.ranks_at_node_starts
                else None
            )
        fitting = [segment for segment in self.segments if segment.seconds_left >= needed and segment.ranks >= degree]
        return self.take_first(
            [min(fitting, key=lambda p: (p.seconds_left, p.ranks, p.first))] if fitting else [], degree
        )

    def adjacent_segments(self, degree: int, needed: float) -> list[RankSegment]:
        """Adjacent segments from the first rank of a node, all but the last a whole node; empty if there are none."""
        run: list[RankSegment] = []
        for segment in sorted(
            segment for segment in self.segments if segment.seconds_left >= needed and segment.first in self.node_sizes
        ):
            if run and run[-1].first + self.node_sizes[run[-1].first] != segment.first:
                run = []
            run.append(segment)
            if sum(segment.ranks for segment in run) >= degree:
                return run
            if segment.ranks < self.node_sizes[segment.first]:
                run = []
        return []

    def take_first(self, segments: list[RankSegment], degree: int) -> RankSegment | None:
        """Take the first `degree` ranks of adjacent segments; the other ranks stay free."""
        if not segments:
            return None
        for segment in segments:
            self.segments.remove(segment)
        first, end, last = segments[0].first, segments[0].first + degree, segments[-1]
        if last.first + last.ranks > end:
            self.segments.append(RankSegment(end, last.first + last.ranks - end, last.seconds_left))
        self.update_summary()
        return RankSegment(first, degree, min(segment.seconds_left for segment in segments))

    def release(self, first: int, degree: int, left: float) -> None:
        """Free the ranks of a group that ends, node by node."""
        for node_first, size in self.node_sizes.items():
            low, high = max(first, node_first), min(first + degree, node_first + size)
            if low < high:
                self.segments.append(RankSegment(low, high - low, left))
        self.update_summary()


# Shape → seconds that a sequence adds to a group of that shape, the cheapest shape first
ShapeSeconds = dict[int, float]


class FillRules(NamedTuple):
    """Free parameters of the fill, over which the search varies."""

    new_micro_batch_weight: float = 2.0  # weight of the constant of a new micro-batch when groups are compared
    excess_constants: float = 2.0  # excess over the cheapest shape, in constants, above which a new group is opened
    open_first: bool = False  # open a new group rather than begin a micro-batch in an open one


@dataclass(slots=True)
class GroupStream:
    """A group of ranks and its micro-batches, from when its ranks became free."""

    shape: int
    first: int  # first rank
    seconds_left: float  # seconds
    micro_batches: list[list[int]] = field(default_factory=list)  # row of the table of each item, by micro-batch
    tokens_left: list[int] = field(default_factory=list)  # tokens left in each micro-batch
    most_tokens_left: int = 0  # the largest of these

    def begin_micro_batch(self, constant: float, room: int) -> None:
        """Begin another micro-batch."""
        self.seconds_left -= constant
        self.micro_batches.append([])
        self.tokens_left.append(room)
        self.most_tokens_left = room

    def add_item(self, item: int, size: int, seconds: float) -> None:
        """Add an item to a micro-batch that was just begun, otherwise to the one that it fills best.

        An item larger than any micro-batch takes a whole one and offloads the rest.
        """
        fitting = [(room, at) for at, room in enumerate(self.tokens_left) if room >= size]
        at = min(fitting)[1] if fitting and self.micro_batches[-1] else len(self.tokens_left) - 1
        self.micro_batches[at].append(item)
        self.tokens_left[at] -= min(size, self.tokens_left[at])
        self.most_tokens_left = max(self.tokens_left)
        self.seconds_left -= seconds


class GroupChoice(NamedTuple):
    """An open group that could take a sequence; the least waste compares first."""

    waste: float  # rank-seconds
    position: int  # in the list of its shape
    shape: int
    new_micro_batch: bool  # whether the group begins another micro-batch for it


class StreamFill:
    """The state of one fill."""

    def __init__(self, table: PackingTable, span: float, rules: FillRules) -> None:
        self.rules = rules
        self.degrees: list[int] = table.degrees.tolist()
        self.rooms: list[int] = table.rooms.tolist()
        self.constants: list[float] = table.constants.tolist()
        self.pools = [shape.pool for shape in table.problem.shapes]
        self.free_ranks = [FreeRanks(pool, span) for pool in table.problem.pools]
        self.streams: list[GroupStream] = []
        self.open: dict[int, list[tuple[float, int]]] = {}  # by shape: (seconds left, stream), rising

    def assign(self, item: int, size: int, shape_seconds: ShapeSeconds) -> bool:
        """Assign a sequence to a group; returns False when it fits nowhere."""
        choice = self.best_open_group(size, shape_seconds)
        number = None
        if (
            choice is None
            or (choice.new_micro_batch and self.rules.open_first)
            or self.too_expensive(choice, shape_seconds)
        ):
            number = self.open_group(shape_seconds)
        if number is None and choice is None:
            number = self.split_wider_group(shape_seconds)
        if number is None:
            if choice is None:
                return False
            number = self.open[choice.shape].pop(choice.position)[1]
            if self.streams[number].most_tokens_left < size:
                self.streams[number].begin_micro_batch(self.constants[choice.shape], self.rooms[choice.shape])
        stream = self.streams[number]
        stream.add_item(item, size, shape_seconds[stream.shape])
        insort(self.open.setdefault(stream.shape, []), (stream.seconds_left, number))
        return True

    def best_open_group(self, size: int, shape_seconds: ShapeSeconds) -> GroupChoice | None:
        """The open group where a sequence leaves the least rank-time free, the cost of a new micro-batch included."""
        best = None
        for shape, open_groups in self.open.items():
            if shape not in shape_seconds:
                continue
            seconds, constant, degree = shape_seconds[shape], self.constants[shape], self.degrees[shape]
            at = bisect_left(open_groups, (seconds, -1))
            while at < len(open_groups) and self.streams[open_groups[at][1]].most_tokens_left < size:
                at += 1
            if at < len(open_groups):
                best = lesser_waste(best, GroupChoice((open_groups[at][0] - seconds) * degree, at, shape, False))
            at = bisect_left(open_groups, (seconds + constant, -1))
            if at < len(open_groups):
                waste = open_groups[at][0] - seconds - constant + self.rules.new_micro_batch_weight * constant
                best = lesser_waste(best, GroupChoice(waste * degree, at, shape, True))
        return best

    def too_expensive(self, choice: GroupChoice, shape_seconds: ShapeSeconds) -> bool:
        """Whether the chosen shape costs too many rank-seconds beyond the cheapest."""
        cheapest = min(seconds * self.degrees[shape] for shape, seconds in shape_seconds.items())
        constant = min(self.constants[shape] * self.degrees[shape] for shape in shape_seconds)
        return (
            shape_seconds[choice.shape] * self.degrees[choice.shape] - cheapest > self.rules.excess_constants * constant
        )

    def open_group(self, shape_seconds: ShapeSeconds) -> int | None:
        """Index of a new group on free ranks, of the cheapest shape that fits; None if none does."""
        for shape, seconds in shape_seconds.items():
            segment = self.free_ranks[self.pools[shape]].allocate(self.degrees[shape], seconds + self.constants[shape])
            if segment:
                self.streams.append(GroupStream(shape, segment.first, segment.seconds_left))
                self.streams[-1].begin_micro_batch(self.constants[shape], self.rooms[shape])
                return len(self.streams) - 1
        return None

    def split_wider_group(self, shape_seconds: ShapeSeconds) -> int | None:
        """Index of a new group on ranks of a wider one, the one with most time left; None if none fits."""
        for shape, seconds in shape_seconds.items():
            wider = [
                open_groups[-1]
                for other, open_groups in self.open.items()
                if open_groups and self.is_wider(other, shape)
            ]
            if wider and max(wider)[0] >= seconds + self.constants[shape]:
                left, number = max(wider)
                ended = self.streams[number]
                self.open[ended.shape].remove((left, number))
                self.free_ranks[self.pools[shape]].release(ended.first, self.degrees[ended.shape], left)
                return self.open_group({shape: seconds})
        return None

    def is_wider(self, other: int, shape: int) -> bool:
        return self.pools[other] == self.pools[shape] and self.degrees[other] > self.degrees[shape]


def lesser_waste(best: GroupChoice | None, other: GroupChoice) -> GroupChoice:
    return other if best is None or other < best else best


def allowed_shapes(table: PackingTable) -> Ints:
    """The shapes that may hold each row of the table, (items, shapes), the cheapest in rank-seconds first; then -1."""
    cheapest_first = np.argsort(table.rank_seconds, axis=1, kind="stable")
    return np.where(np.isfinite(np.take_along_axis(table.seconds, cheapest_first, axis=1)), cheapest_first, -1)


def fill_streams(
    table: PackingTable, nodes: NodeTable, shapes: Ints, span: float, rules: FillRules, order: Ints
) -> Packing | None:
    """A packing that is done within `span` seconds, or None. `order`: rows of the table, roughly longest first."""
    fill = compiled_streams if FILL_LIBRARY else plain_streams
    streams = fill(table, nodes, shapes, span, rules, order)
    return None if streams is None else micro_batches_of(table, streams)


def plain_streams(
    table: PackingTable, nodes: NodeTable, shapes: Ints, span: float, rules: FillRules, order: Ints
) -> list[GroupStream] | None:
    """The fill in plain Python, with the result of the compiled one."""
    state, sizes = StreamFill(table, span, rules), table.sizes.tolist()
    by_item = zip(shapes.tolist(), table.seconds.tolist(), strict=True)
    takes = [{shape: seconds[shape] for shape in allowed if shape >= 0} for allowed, seconds in by_item]
    return state.streams if all(state.assign(item, sizes[item], takes[item]) for item in order.tolist()) else None


def compiled_streams(
    table: PackingTable, nodes: NodeTable, shapes: Ints, span: float, rules: FillRules, order: Ints
) -> list[GroupStream] | None:
    """The compiled fill. Raises MemoryError."""
    assert FILL_LIBRARY
    items = len(order)
    inputs = map(address_of, (order, table.sizes, table.seconds, shapes))
    stream_of, micro_batch_of, shape, first = (np.empty(items, dtype=np.int64) for _ in range(4))
    outputs = map(address_of, (stream_of, micro_batch_of, shape, first))
    count = FILL_LIBRARY.planner_fill_streams(
        items, *inputs, span, *rules, ctypes.byref(shapes_of(table, nodes)), *outputs
    )
    if count == -2:
        raise MemoryError
    if count < 0:
        return None
    streams = [GroupStream(*each, 0.0) for each in zip(shape[:count].tolist(), first[:count].tolist(), strict=True)]
    of, micro_batches = stream_of.tolist(), micro_batch_of.tolist()
    for item in order.tolist():
        begun = streams[of[item]].micro_batches
        if len(begun) == micro_batches[item]:
            begun.append([])
        begun[micro_batches[item]].append(item)
    return streams


def micro_batches_of(table: PackingTable, streams: list[GroupStream]) -> Packing:
    """The packing of these streams: every rank runs its micro-batches in the order in which its groups were opened."""
    micro_batches: list[list[PackedGroup]] = []
    next_index: dict[int, int] = {}
    items = table.items.tolist()
    for stream in streams:
        ranks = range(stream.first, stream.first + int(table.degrees[stream.shape]))
        start = max(next_index.get(rank, 0) for rank in ranks)
        for number, batch in enumerate(stream.micro_batches):
            while len(micro_batches) <= start + number:
                micro_batches.append([])
            micro_batches[start + number].append(
                PackedGroup(stream.shape, tuple(items[i] for i in batch), stream.first)
            )
        next_index.update(dict.fromkeys(ranks, start + len(stream.micro_batches)))
    return tuple(tuple(micro_batch) for micro_batch in micro_batches)
