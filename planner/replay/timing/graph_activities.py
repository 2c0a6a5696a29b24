"""Converts execution graphs to activities of the event clock: a lane per thread and per stream, one graph per rank,
joined by collectives.

A host segment is in the queue of its thread from the beginning. An operation joins the queue of its stream when the
segment that launches it ends. A synchronising call is two segments: the first puts a marker into the queues of its
streams, the second waits for the markers; so what it waits for is determined while the clock runs.

Where a kind of dependency is left out, streams keep their measured order (`in_order`): operations are in the queue of
their stream from the beginning, and a call waits for the operation that it waited for as measured. The order is then
independent of durations, so nothing comes later because something else is faster.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from planner.plan.tasks.ragged_array import IntArray
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.dependencies.host_segments import DependencyKind, HostSegment
from planner.replay.dependencies.op_timing import OpTiming
from planner.simulate import NO_ACTIVITY, Activities, ActivityBuilder


class CollectiveOps(NamedTuple):
    """A collective: the operations of its ranks, and its own seconds after the last one has arrived."""

    ops: tuple[tuple[int, int], ...]  # (graph, operation)
    seconds: float


class GraphActivities(NamedTuple):
    """Activities, and the numbers that the segments and operations of each graph have among them."""

    activities: Activities
    first_segments: tuple[int, ...]  # number of the first segment of each graph
    op_numbers: tuple[IntArray, ...]  # per graph, the number of each operation; for a collective, of its arrival
    collective_exits: dict[tuple[int, int], int]  # (graph, operation of a collective) → the activity that ends with it
    first_collective: int  # number of the first collective


def build_activities(
    graphs: Sequence[ExecutionGraph],
    without: Collection[DependencyKind] = (),
    collectives: Sequence[CollectiveOps] = (),
    offsets: Sequence[float] = (),
) -> GraphActivities:
    """Activities of all graphs; `without`: kinds of dependencies to leave out; `offsets`: when each capture begins, in
    seconds.
    """
    return GraphActivityBuilder(graphs, frozenset(without), collectives, offsets or [0.0] * len(graphs)).build()


class GraphActivityBuilder:
    """Assigns all numbers first, since an activity may come before one that it waits for."""

    def __init__(
        self,
        graphs: Sequence[ExecutionGraph],
        without: frozenset[DependencyKind],
        meetings: Sequence[CollectiveOps],
        offsets: Sequence[float],
    ) -> None:
        self.graphs, self.without, self.collectives, self.offsets = graphs, without, meetings, offsets
        self.in_order = bool(without)
        self.builder = ActivityBuilder()
        self.collective_of_op = {op: i for i, collective in enumerate(meetings) for op in collective.ops}
        self.first_segments: list[int] = []
        self.op_numbers: list[IntArray] = []
        self.markers: list[int] = []
        number = 0
        exits = [np.zeros(len(graph.op_timings), dtype=np.int64) for graph in graphs]
        for g, op in self.collective_of_op:
            exits[g][op] = 1
        for graph, is_collective in zip(graphs, exits, strict=True):
            self.first_segments.append(number)
            number += len(graph.segments)
            # The exit of a collective is numbered right after its arrival, so nothing queues between them.
            self.op_numbers.append(number + np.arange(len(is_collective)) + np.cumsum(is_collective) - is_collective)
            number += len(is_collective) + int(is_collective.sum())
            self.markers.append(number)
            number += sum(len(segment.awaited_streams) for segment in graph.segments)
        self.collective_exits = {(g, op): int(self.op_numbers[g][op]) + 1 for g, op in self.collective_of_op}
        self.first_collective = number  # number of the first collective; launch delays follow them
        self.number = number + len(meetings)
        self.delays: list[tuple[float, int]] = []

    def build(self) -> GraphActivities:
        for g, graph in enumerate(self.graphs):
            self.add_rank(g, graph)
        for collective in self.collectives:
            self.builder.add(collective.seconds, after=[int(self.op_numbers[g][op]) for g, op in collective.ops])
        for seconds, launch in self.delays:
            self.builder.add(seconds, queued_by=launch)
        return GraphActivities(
            self.builder.build(),
            tuple(self.first_segments),
            tuple(self.op_numbers),
            self.collective_exits,
            self.first_collective,
        )

    def add_rank(self, g: int, graph: ExecutionGraph) -> None:
        """Add the activities of one graph except launch delays."""
        threads, streams = (
            [(self.builder.add_lane(),) for _ in lanes] for lanes in (graph.trace.threads, graph.trace.streams)
        )
        marker, leave_out_unseen = self.markers[g], "unseen" in self.without
        markers: list[tuple[int, int, int]] = []
        for i, segment in enumerate(graph.segments):
            first = i == 0 or graph.segments[i - 1].thread != segment.thread
            after: Sequence[int] = ()
            seconds = segment.seconds + (0.0 if leave_out_unseen else segment.unseen)
            if segment.synchronises or segment.awaited_segments:
                own = range(marker, marker + len(segment.awaited_streams))
                after = [*self.segment_awaits(g, segment), *(own if "synchronise" not in self.without else ())]
                marker = own.stop
                queuer = NO_ACTIVITY if first else self.first_segments[g] + i - 1
                markers += [(stream, queuer, op) for stream, op in segment.awaited_streams]
            elif first:
                seconds += self.offsets[g]
            self.builder.add(seconds, threads[segment.thread], after)
        queuers = self.queueing_segments(g, graph.op_timings)
        for i, work in enumerate(graph.op_timings):
            self.add_op(g, i, work, streams[graph.trace.ops[i].stream], queuers[i])
        for stream, queuer, op in markers:
            if self.in_order:
                self.builder.add(0.0, after=[self.op_end(g, op)])
            else:
                self.builder.add(0.0, streams[stream], queued_by=queuer)

    def segment_awaits(self, g: int, segment: HostSegment) -> list[int]:
        """Activities that a segment waits for."""
        after: list[int] = []
        if "threads" not in self.without:
            after += [self.first_segments[g] + other.number for other in segment.awaited_segments]
        if "synchronise" not in self.without:
            after += [self.op_end(g, op) for op in segment.awaited_ops]
        return after

    def op_end(self, g: int, op: int) -> int:
        """The activity that ends when an operation ends."""
        return self.collective_exits.get((g, op), int(self.op_numbers[g][op]))

    def add_op(self, g: int, i: int, work: OpTiming, lane: tuple[int], launch: int) -> None:
        """Add an operation, its launch delay, and for a collective its exit."""
        queuer = NO_ACTIVITY if self.in_order else launch
        collective = self.collective_of_op.get((g, i))
        after = [] if "inter-stream" in self.without else [self.op_end(g, op) for op in work.awaits]
        delay = work.delay + (self.offsets[g] if work.launch is None and work.previous < 0 else 0.0)
        if delay > 0 and (launch != NO_ACTIVITY or work.launch is None):
            after.append(self.number + len(self.delays))
            self.delays.append((delay, launch))
        elif self.in_order and launch != NO_ACTIVITY:
            after.append(launch)
        lead = work.lead - (work.hidden if "hidden" in self.without else 0.0)
        lead += 0.0 if "unseen" in self.without else work.unseen
        self.builder.add(lead + (work.seconds if collective is None else 0.0), lane, after, queued_by=queuer)
        if collective is not None:
            self.builder.add(0.0, lane, (self.first_collective + collective,), queued_by=queuer)

    def queueing_segments(self, g: int, work: Sequence[OpTiming]) -> list[int]:
        """The segment that queues each operation: that of its launch, else that of its predecessor on the stream."""
        if "launch" in self.without:
            return [NO_ACTIVITY] * len(work)
        found: list[int] = []
        for each in work:
            before = found[each.previous] if each.previous >= 0 else NO_ACTIVITY
            found.append(before if each.launch is None else self.first_segments[g] + each.launch.number)
        return found
