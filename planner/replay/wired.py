"""Converts execution graphs to activities of the event clock: a lane per thread and per stream, one graph per rank,
joined by collectives.

A host segment is in the queue of its thread from the beginning. An operation joins the queue of its stream when the
segment that launches it ends. A synchronising call is two segments: the first puts a marker into the queues of its
streams, the second waits for the markers; so what it waits for is determined while the clock runs.

Where streams keep their measured order (`in_order`, or where a kind of dependency is left out), operations are in the
queue of their stream from the beginning, and a call waits for the operation that it waited for as measured. The order
is then independent of durations, so nothing comes later because something else is faster.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from planner.replay.graph import Graph
from planner.replay.pace import Work
from planner.replay.pieces import Kind, Piece
from planner.simulate.activities import NOBODY, Activities, Builder, Numbers


class Meeting(NamedTuple):
    """A collective: the operations of its ranks, and its own seconds after the last one has arrived."""

    ops: tuple[tuple[int, int], ...]  # (graph, operation)
    seconds: float


class Wired(NamedTuple):
    """Activities, and the numbers that the segments and operations of each graph have among them."""

    activities: Activities
    pieces: tuple[int, ...]  # number of the first segment of each graph
    ops: tuple[Numbers, ...]  # per graph, the number of each operation; for a collective, of its arrival
    leaves: dict[tuple[int, int], int]  # (graph, operation of a collective) → the activity that ends with it
    meetings: int  # number of the first collective


def wired(
    graphs: Sequence[Graph],
    without: Collection[Kind] = (),
    meetings: Sequence[Meeting] = (),
    offsets: Sequence[float] = (),
    *,
    in_order: bool = False,
) -> Wired:
    """Activities of all graphs; `without`: kinds of dependencies to leave out; `offsets`: when each capture begins, in
    seconds; `in_order`: streams keep their measured order.
    """
    wiring = Wiring(graphs, frozenset(without), meetings, offsets or [0.0] * len(graphs))
    wiring.in_order = in_order or bool(without)
    return wiring.done()


class Wiring:
    """Assigns all numbers first, since an activity may come before one that it waits for."""

    def __init__(
        self, graphs: Sequence[Graph], without: frozenset[Kind], meetings: Sequence[Meeting], offsets: Sequence[float]
    ) -> None:
        self.graphs, self.without, self.meetings, self.offsets = graphs, without, meetings, offsets
        self.in_order = False
        self.built = Builder()
        self.met = {op: i for i, collective in enumerate(meetings) for op in collective.ops}
        self.pieces: list[int] = []
        self.ops: list[Numbers] = []
        self.markers: list[int] = []
        number = 0
        for g, graph in enumerate(graphs):
            self.pieces.append(number)
            number += len(graph.pieces)
            # The exit of a collective is numbered right after its arrival, so nothing queues between them.
            is_collective = np.array([(g, i) in self.met for i in range(len(graph.work))], dtype=np.int64)
            self.ops.append(number + np.arange(len(is_collective)) + np.cumsum(is_collective) - is_collective)
            number += len(is_collective) + int(is_collective.sum())
            self.markers.append(number)
            number += sum(len(segment.markers) for segment in graph.pieces)
        self.leaves = {(g, op): int(self.ops[g][op]) + 1 for g, op in self.met}
        self.meeting = number  # number of the first collective; launch delays follow them
        self.number = number + len(meetings)
        self.delays: list[tuple[float, int]] = []

    def done(self) -> Wired:
        for g, graph in enumerate(self.graphs):
            self.rank(g, graph)
        for collective in self.meetings:
            self.built.add(collective.seconds, after=[int(self.ops[g][op]) for g, op in collective.ops])
        for seconds, launch in self.delays:
            self.built.add(seconds, queued_by=launch)
        return Wired(self.built.done(), tuple(self.pieces), tuple(self.ops), self.leaves, self.meeting)

    def rank(self, g: int, graph: Graph) -> None:
        """Add the activities of one graph except launch delays."""
        threads = [self.built.lane() for _ in graph.trace.threads]
        streams = [self.built.lane() for _ in graph.trace.streams]
        marker = self.markers[g]
        markers: list[tuple[int, int, int]] = []
        for i, segment in enumerate(graph.pieces):
            after = self.after(g, segment)
            if "synchronise" not in self.without:
                after += range(marker, marker + len(segment.markers))
            first = i == 0 or graph.pieces[i - 1].thread != segment.thread
            seconds = segment.seconds + (self.offsets[g] if first and not awaited(segment) else 0.0)
            seconds += 0.0 if "unseen" in self.without else segment.unseen
            markers += [(stream, NOBODY if first else self.pieces[g] + i - 1, op) for stream, op in segment.markers]
            marker += len(segment.markers)
            self.built.add(seconds, [threads[segment.thread]], after)
        queuers = self.queuers(g, graph.work)
        for i, work in enumerate(graph.work):
            self.op(g, i, work, streams[graph.trace.ops[i].stream], queuers[i])
        for stream, queuer, op in markers:
            if self.in_order:
                self.built.add(0.0, after=[self.end_of(g, op)])
            else:
                self.built.add(0.0, [streams[stream]], queued_by=queuer)

    def after(self, g: int, segment: Piece) -> list[int]:
        """Activities that a segment waits for."""
        after: list[int] = []
        if "threads" not in self.without:
            after += [self.pieces[g] + other.number for other in segment.pieces]
        if "synchronise" not in self.without:
            after += [self.end_of(g, op) for op in segment.ops]
        return after

    def end_of(self, g: int, op: int) -> int:
        """The activity that ends when an operation ends."""
        return self.leaves.get((g, op), int(self.ops[g][op]))

    def op(self, g: int, i: int, work: Work, lane: int, launch: int) -> None:
        """Add an operation, its launch delay, and for a collective its exit."""
        queuer = NOBODY if self.in_order else launch
        after = [] if "inter-stream" in self.without else [self.end_of(g, op) for op in work.awaits]
        delay = work.delay + (self.offsets[g] if work.launch is None and work.after < 0 else 0.0)
        if delay > 0 and (launch != NOBODY or work.launch is None):
            after.append(self.number + len(self.delays))
            self.delays.append((delay, launch))
        elif self.in_order and launch != NOBODY:
            after.append(launch)
        lead = work.lead + (0.0 if "unseen" in self.without else work.unseen)
        self.built.add(lead + (0.0 if (g, i) in self.met else work.seconds), [lane], after, queued_by=queuer)
        if (g, i) in self.met:
            self.built.add(0.0, [lane], [self.meeting + self.met[g, i]], queued_by=queuer)

    def queuers(self, g: int, work: Sequence[Work]) -> list[int]:
        """The segment that queues each operation: that of its launch, else that of its predecessor on the stream."""
        if "launch" in self.without:
            return [NOBODY] * len(work)
        found: list[int] = []
        for each in work:
            before = found[each.after] if each.after >= 0 else NOBODY
            found.append(before if each.launch is None else self.pieces[g] + each.launch.number)
        return found


def awaited(segment: Piece) -> bool:
    """Whether a segment waits for more than the previous one of its thread."""
    return bool(segment.ops or segment.markers or segment.pieces)
