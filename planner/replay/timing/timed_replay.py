"""Replays execution graphs on the event clock, from durations and dependencies only, and compares with the measurement.

Durations are those of the trace: of host segments, of device operations, and of the short gap from the release of an
operation to its start. So an error in the step means that a dependency that was found is wrong. The absence of error
means little: a wait that was not found is part of the host's time or of the device's gaps, which are copied. How much
of a step rests on a kind of dependency shows in the step without it; `explained` is the step without the gaps of the
device that nothing found accounts for.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

import numpy as np

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph, StepBoundary
from planner.replay.dependencies.host_segments import DependencyKind
from planner.replay.recording.recorded_names import kernel_class
from planner.replay.timing.graph_activities import GraphActivities, build_activities
from planner.replay.timing.matched_collectives import MatchedRanks, match_ranks, rank_of_graph
from planner.replay.timing.step_breakdown import StepBreakdown, TimeArray, mean_breakdown
from planner.simulate import ActivityTimes as ClockTimes
from planner.simulate import run_activities


class ReplayedStep(NamedTuple):
    """One step of one rank, in seconds."""

    rank: int
    name: str
    measured: float
    replayed: float

    @property
    def error(self) -> float:
        """Relative error of the replayed step."""
        return abs(self.replayed / self.measured - 1) if self.measured else 0.0


def median_step_error(steps: Sequence[ReplayedStep]) -> float:
    return median([step.error for step in steps]) if steps else 0.0


def worst_step_error(steps: Sequence[ReplayedStep]) -> float:
    return max((step.error for step in steps), default=0.0)


class StreamSeconds(NamedTuple):
    """Seconds of work on one stream; the fields are keys of the JSON answer."""

    rank: int
    stream: str
    measured: float
    replayed: float


@dataclass(frozen=True)
class Replay:
    """Graphs of one or more ranks with the times of their activities on the event clock."""

    graphs: tuple[ExecutionGraph, ...]
    matched: MatchedRanks
    activities: GraphActivities
    times: ClockTimes

    def segment_end(self, g: int, number: int) -> float:
        """When segment `number` of graph `g` ended, in seconds."""
        return float(self.times.ends[self.activities.first_segments[g] + number])

    def op_times(self, g: int) -> tuple[TimeArray, TimeArray]:
        """Start and end of each operation of graph `g` in seconds, (operations,) each; `lead` precedes it."""
        work = self.graphs[g].op_timings
        ends = self.times.ends[self.activities.op_numbers[g]]
        starts = ends.copy()
        for i, each in enumerate(work):
            if (g, i) in self.activities.collective_exits:
                ends[i] = self.times.ends[self.activities.collective_exits[g, i]]
            else:
                starts[i] -= each.seconds
        return starts, ends

    @cached_property
    def steps(self) -> list[ReplayedStep]:
        """All steps of all ranks, rank by rank."""
        steps = []
        for g, graph in enumerate(self.graphs):
            for step in graph.steps:
                begin, end = self.boundary(g, step.begin), self.boundary(g, step.end)
                steps.append(ReplayedStep(rank_of_graph(self.graphs, g), step.name, step.seconds, end - begin))
        return steps

    def boundary(self, g: int, where: StepBoundary) -> float:
        """When a step of graph `g` begins or ends as replayed, in seconds."""
        return where.time(self.segment_end(g, where.segment.number), self.op_ends[g])

    @cached_property
    def op_ends(self) -> list[TimeArray]:
        """End of each operation of each graph in seconds, (operations,) each."""
        return [self.op_times(g)[1] for g in range(len(self.graphs))]

    @property
    def median_error(self) -> float:
        return median_step_error(self.steps)

    @property
    def worst_error(self) -> float:
        return worst_step_error(self.steps)

    @property
    def step_seconds(self) -> float:
        """Median replayed step in seconds; a step lasts as long as on its slowest rank."""
        return median(self.slowest_ranks(replayed=True)) if self.steps else 0.0

    @property
    def measured_step_seconds(self) -> float:
        return median(self.slowest_ranks(replayed=False)) if self.steps else 0.0

    def slowest_ranks(self, *, replayed: bool) -> list[float]:
        """Seconds of each step on its slowest rank; steps of ranks are matched by name."""
        longest: dict[str, float] = {}
        for step in self.steps:
            seconds = step.replayed if replayed else step.measured
            longest[step.name] = max(seconds, longest.get(step.name, 0.0))
        return [*longest.values()]

    def step_windows(self, g: int) -> list[tuple[float, float]]:
        """Begin and end of each step of graph `g` as replayed, in seconds."""
        return [(self.boundary(g, step.begin), self.boundary(g, step.end)) for step in self.graphs[g].steps]

    def breakdown(self, g: int = 0) -> StepBreakdown:
        """Breakdown of the mean replayed step of one rank."""
        graph, ops = self.graphs[g], self.graphs[g].trace.ops
        kinds = np.array([kernel_class(op.name, op.kind) for op in ops], dtype=np.str_)
        if all(op.kind == "collective" for op in ops):  # no device: host operators are the compute, as measured
            spans = graph.trace.host
            operators = ~spans.annotation
            windows = [(step.begin.segment.end, step.end.segment.end) for step in graph.steps]
            kinds = np.concatenate([kinds, np.full(int(operators.sum()), "operators")])
            starts = np.concatenate([[op.start for op in ops], spans.start[operators]])
            ends = np.concatenate([[op.end for op in ops], spans.end[operators]])
            return mean_breakdown(kinds, starts, ends, windows)
        return mean_breakdown(kinds, *self.op_times(g), self.step_windows(g))

    def stream_seconds(self) -> list[StreamSeconds]:
        """Seconds of work of every stream, measured and replayed."""
        streams = []
        for g, graph in enumerate(self.graphs):
            starts, ends = self.op_times(g)
            ops = graph.trace.ops
            stream_of = np.fromiter((op.stream for op in ops), dtype=np.int64, count=len(ops))
            durations = np.fromiter((op.end - op.start for op in ops), dtype=np.float64, count=len(ops))
            measured, replayed = (
                np.bincount(stream_of, weights=each, minlength=len(graph.trace.streams))
                for each in (durations, ends - starts)
            )
            for stream, name in enumerate(graph.trace.streams):
                streams.append(
                    StreamSeconds(rank_of_graph(self.graphs, g), name, float(measured[stream]), float(replayed[stream]))
                )
        return streams

    @cached_property
    def copied(self) -> "CopiedSeconds":
        """What the replay copies from the traces."""
        pieces = [piece for graph in self.graphs for piece in graph.segments]
        work = [each for graph in self.graphs for each in graph.op_timings]
        return CopiedSeconds(
            host=sum(piece.seconds for piece in pieces),
            gaps=sum(each.lead + each.delay for each in work),
            unseen=sum(each.unseen for each in work) + sum(piece.unseen for piece in pieces),
            launched=sum(each.launch is not None for each in work),
            operations=len(work),
        )


class CopiedSeconds(NamedTuple):
    """Seconds that are copied from the traces into the replay, since no dependency accounts for them."""

    host: float  # of all threads, between their waits
    gaps: float  # launch latencies and usual gaps between operations
    unseen: float  # gaps beyond that, and calls that synchronise with nothing that was found
    launched: int  # operations with a launch in the trace
    operations: int


def replay_graphs(
    graphs: Sequence[ExecutionGraph],
    without: Collection[DependencyKind] = (),
    *,
    changes: Sequence[str] = (),
    matched: MatchedRanks | None = None,
) -> Replay:
    """Replay all ranks on one event clock.

    `without`: kinds of dependencies to leave out; `changes`: options that changed the graphs, for errors; `matched`:
    collectives of these graphs where they are known. Raises InputError when activities wait for each other in a cycle.
    """
    matched = matched or match_ranks(graphs)
    collectives = [each.collective for each in matched.collectives]
    converted = build_activities(graphs, without, collectives, matched.begins)
    times, ended = run_activities(converted.activities)
    if not ended.all():
        raise circular_wait_error(without, changes)
    return Replay(tuple(graphs), matched, converted, times)


def circular_wait_error(without: Collection[DependencyKind], changes: Sequence[str]) -> InputError:
    if changes:
        what = f"with {', '.join(changes)} operations wait for each other in a cycle"
        return InputError(what, where=changes[-1], fix="ask for fewer changes at once")
    if without:
        what = f"without {', '.join(sorted(without))} operations wait for each other in a cycle"
        fix = "leave out another kind"
        return InputError(what, where="--without", fix=fix)
    fix = "replay fewer ranks, or record again with a current profiler"
    return InputError("operations of the trace wait for each other in a cycle", where="the trace", fix=fix)
