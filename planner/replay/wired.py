"""Graphs as activities of the clock: a lane per thread and per stream; one graph per rank, joined by collectives.

A piece waits in its thread's queue from the beginning. An operation comes into its stream's queue as the piece that
launches it ends. A call that synchronises is two pieces: the first puts a marker into the queues of its streams, the
second waits for the markers; so what it waits for is found as the clock runs.

Where a stream's order is kept as measured (`in_order`, and where a kind of dependency is left out), its operations are
in its queue from the beginning, and a call waits for the operation that it waited for as measured. Then who comes
behind whom is the same whatever things take, so that nothing comes later because something else is quicker.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from planner.replay.graph import Graph
from planner.replay.pace import Work
from planner.replay.pieces import Kind, Piece
from planner.simulate.activities import NOBODY, Activities, Builder, Numbers


class Meeting(NamedTuple):
    """A collective: the operation of each rank that is part of it, and its own seconds once all are there."""

    ops: tuple[tuple[int, int], ...]  # (graph, operation)
    seconds: float


class Wired(NamedTuple):
    """Activities, and where the pieces and the operations of each graph are among them."""

    activities: Activities
    pieces: tuple[int, ...]  # number of the first piece of each graph
    ops: tuple[Numbers, ...]  # of each operation; of one that meets others, when it arrives
    leaves: dict[tuple[int, int], int]  # (graph, operation) → the activity as which one that meets others ends
    meetings: int  # number of the first collective


def wired(
    graphs: Sequence[Graph],
    without: Collection[Kind] = (),
    meetings: Sequence[Meeting] = (),
    offsets: Sequence[float] = (),
    *,
    in_order: bool = False,
) -> Wired:
    """All graphs on one clock; `offsets`: when each rank begins; `in_order`: streams keep the order that they had."""
    wiring = Wiring(graphs, frozenset(without), meetings, offsets or [0.0] * len(graphs))
    wiring.in_order = in_order or bool(without)
    return wiring.done()


class Wiring:
    """Numbers first, since what waits may come before what it waits for."""

    def __init__(
        self, graphs: Sequence[Graph], without: frozenset[Kind], meetings: Sequence[Meeting], offsets: Sequence[float]
    ) -> None:
        self.graphs, self.without, self.meetings, self.offsets = graphs, without, meetings, offsets
        self.in_order = False
        self.built = Builder()
        self.met = {op: i for i, meeting in enumerate(meetings) for op in meeting.ops}
        self.pieces: list[int] = []
        self.ops: list[Numbers] = []
        self.markers: list[int] = []
        number = 0
        for g, graph in enumerate(graphs):
            self.pieces.append(number)
            number += len(graph.pieces)
            # Whoever meets others leaves right behind its arrival, so that nothing comes between in its stream's queue.
            more = np.array([(g, i) in self.met for i in range(len(graph.work))], dtype=np.int64)
            self.ops.append(number + np.arange(len(more)) + np.cumsum(more) - more)
            number += len(more) + int(more.sum())
            self.markers.append(number)
            number += sum(len(piece.markers) for piece in graph.pieces)
        self.leaves = {(g, op): int(self.ops[g][op]) + 1 for g, op in self.met}
        self.meeting = number  # the first collective's; then delays
        self.number = number + len(meetings)
        self.delays: list[tuple[float, int]] = []

    def done(self) -> Wired:
        for g, graph in enumerate(self.graphs):
            self.rank(g, graph)
        for meeting in self.meetings:
            self.built.add(meeting.seconds, after=[int(self.ops[g][op]) for g, op in meeting.ops])
        for seconds, launch in self.delays:
            self.built.add(seconds, queued_by=launch)
        return Wired(self.built.done(), tuple(self.pieces), tuple(self.ops), self.leaves, self.meeting)

    def rank(self, g: int, graph: Graph) -> None:
        """The activities of one graph but for delays."""
        threads = [self.built.lane() for _ in graph.trace.threads]
        streams = [self.built.lane() for _ in graph.trace.streams]
        marker = self.markers[g]
        markers: list[tuple[int, int, int]] = []
        for i, piece in enumerate(graph.pieces):
            after = self.after(g, piece)
            if "synchronise" not in self.without:
                after += range(marker, marker + len(piece.markers))
            first = i == 0 or graph.pieces[i - 1].thread != piece.thread
            seconds = piece.seconds + (self.offsets[g] if first and not awaited(piece) else 0.0)
            seconds += 0.0 if "unseen" in self.without else piece.unseen
            markers += [(stream, NOBODY if first else self.pieces[g] + i - 1, op) for stream, op in piece.markers]
            marker += len(piece.markers)
            self.built.add(seconds, [threads[piece.thread]], after)
        queuers = self.queuers(g, graph.work)
        for i, work in enumerate(graph.work):
            self.op(g, i, work, streams[graph.trace.ops[i].stream], queuers[i])
        for stream, queuer, op in markers:
            if self.in_order:
                self.built.add(0.0, after=[self.end_of(g, op)])
            else:
                self.built.add(0.0, [streams[stream]], queued_by=queuer)

    def after(self, g: int, piece: Piece) -> list[int]:
        after: list[int] = []
        if "threads" not in self.without:
            after += [self.pieces[g] + other.number for other in piece.pieces]
        if "synchronise" not in self.without:
            after += [self.end_of(g, op) for op in piece.ops]
        return after

    def end_of(self, g: int, op: int) -> int:
        """The activity whose end is that of an operation."""
        return self.leaves.get((g, op), int(self.ops[g][op]))

    def op(self, g: int, i: int, work: Work, lane: int, launch: int) -> None:
        """An operation, the delay from its launch, and where it meets others, what comes behind that."""
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
        """The piece that puts each operation into its stream's queue: without one of its own, the one before it."""
        if "launch" in self.without:
            return [NOBODY] * len(work)
        found: list[int] = []
        for each in work:
            before = found[each.after] if each.after >= 0 else NOBODY
            found.append(before if each.launch is None else self.pieces[g] + each.launch.number)
        return found


def awaited(piece: Piece) -> bool:
    return bool(piece.ops or piece.markers or piece.pieces)
