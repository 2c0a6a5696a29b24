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
from planner.replay.breakdown import Breakdown, Times, breakdown
from planner.replay.collectives import Met, collectives, offsets, rank_of
from planner.replay.graph import Graph
from planner.replay.pieces import Kind
from planner.replay.wired import Wired, wired
from planner.simulate.activities import Times as ClockTimes
from planner.simulate.native import run


class StepTimes(NamedTuple):
    """One step of one rank, in seconds."""

    rank: int
    name: str
    measured: float
    replayed: float

    @property
    def error(self) -> float:
        """Relative error of the replayed step."""
        return abs(self.replayed / self.measured - 1) if self.measured else 0.0


def middle_error(steps: Sequence[StepTimes]) -> float:
    return median([step.error for step in steps]) if steps else 0.0


def worst_error(steps: Sequence[StepTimes]) -> float:
    return max((step.error for step in steps), default=0.0)


class Busy(NamedTuple):
    """Seconds of work on one stream; the fields are keys of the JSON answer."""

    rank: int
    stream: str
    measured: float
    replayed: float


@dataclass(frozen=True)
class Replay:
    """Graphs of one or more ranks with the times of their activities on the event clock."""

    graphs: tuple[Graph, ...]
    met: tuple[Met, ...]
    wired: Wired
    times: ClockTimes
    notes: tuple[str, ...]

    def piece_end(self, g: int, number: int) -> float:
        """When segment `number` of graph `g` ended, in seconds."""
        return float(self.times.ends[self.wired.pieces[g] + number])

    def op_times(self, g: int) -> tuple[Times, Times]:
        """Start and end of each operation of graph `g` in seconds, (operations,) each; `lead` precedes it."""
        work = self.graphs[g].work
        ends = self.times.ends[self.wired.ops[g]]
        starts = ends.copy()
        for i, each in enumerate(work):
            if (g, i) in self.wired.leaves:
                ends[i] = self.times.ends[self.wired.leaves[g, i]]
            else:
                starts[i] -= each.seconds
        return starts, ends

    @cached_property
    def steps(self) -> list[StepTimes]:
        """All steps of all ranks, rank by rank."""
        steps = []
        for g, graph in enumerate(self.graphs):
            for step in graph.steps:
                seconds = self.piece_end(g, step.end.number) - self.piece_end(g, step.begin.number)
                steps.append(StepTimes(rank_of(self.graphs, g), step.name, step.seconds, seconds))
        return steps

    @property
    def median_error(self) -> float:
        return middle_error(self.steps)

    @property
    def worst_error(self) -> float:
        return worst_error(self.steps)

    @property
    def step_seconds(self) -> float:
        """Median replayed step in seconds; a step lasts as long as on its slowest rank."""
        return median(self.slowest(replayed=True)) if self.steps else 0.0

    @property
    def measured_step_seconds(self) -> float:
        return median(self.slowest(replayed=False)) if self.steps else 0.0

    def slowest(self, *, replayed: bool) -> list[float]:
        """Seconds of each step on its slowest rank; steps of ranks are matched by name."""
        longest: dict[str, float] = {}
        for step in self.steps:
            seconds = step.replayed if replayed else step.measured
            longest[step.name] = max(seconds, longest.get(step.name, 0.0))
        return [*longest.values()]

    def windows(self, g: int) -> list[tuple[float, float]]:
        """Begin and end of each step of graph `g` as replayed, in seconds."""
        return [(self.piece_end(g, s.begin.number), self.piece_end(g, s.end.number)) for s in self.graphs[g].steps]

    def breakdown(self, g: int = 0) -> Breakdown:
        """Breakdown of the mean replayed step of one rank."""
        graph = self.graphs[g]
        if not graph.work:  # no device: host operators are the compute
            spans = graph.trace.host
            operators = ~spans.annotation
            measured = [(step.begin.end, step.end.end) for step in graph.steps]
            return breakdown(graph.trace, spans.start[operators], spans.end[operators], measured)
        return breakdown(graph.trace, *self.op_times(g), self.windows(g))

    def busy(self) -> list[Busy]:
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
                streams.append(Busy(rank_of(self.graphs, g), name, float(measured[stream]), float(replayed[stream])))
        return streams

    @cached_property
    def copied(self) -> "Copied":
        """What the replay copies from the traces."""
        pieces = [piece for graph in self.graphs for piece in graph.pieces]
        work = [each for graph in self.graphs for each in graph.work]
        return Copied(
            host=sum(piece.seconds for piece in pieces),
            gaps=sum(each.lead + each.delay for each in work),
            unseen=sum(each.unseen for each in work) + sum(piece.unseen for piece in pieces),
            launched=sum(each.launch is not None for each in work),
            operations=len(work),
        )


class Copied(NamedTuple):
    """Seconds that are copied from the traces into the replay, since no dependency accounts for them."""

    host: float  # of all threads, between their waits
    gaps: float  # launch latencies and usual gaps between operations
    unseen: float  # gaps beyond that, and calls that synchronise with nothing that was found
    launched: int  # operations with a launch in the trace
    operations: int


def replay(
    graphs: Sequence[Graph], without: Collection[Kind] = (), *, in_order: bool = False, changes: Sequence[str] = ()
) -> Replay:
    """Replay all ranks on one event clock.

    `without`: kinds of dependencies to leave out; `in_order`: streams keep their measured order; `changes`: options
    that changed the graphs, for errors. Raises InputError when activities wait for each other in a circle.
    """
    matched, notes = collectives(graphs) if len(graphs) > 1 else ([], [])
    begins, _ = offsets(graphs) if len(graphs) > 1 else ([0.0] * len(graphs), True)
    converted = wired(graphs, without, [each.meeting for each in matched], begins, in_order=in_order)
    times, ended = run(converted.activities)
    if not ended.all():
        raise circle(without, changes)
    return Replay(tuple(graphs), tuple(matched), converted, times, tuple(notes))


def circle(without: Collection[Kind], changes: Sequence[str]) -> InputError:
    if changes:
        what = f"with {', '.join(changes)} operations wait for each other in a circle"
        return InputError(what, where=changes[-1], fix="ask for fewer changes at once")
    if without:
        what, fix = (
            f"without {', '.join(sorted(without))} operations wait for each other in a circle",
            "leave out another kind",
        )
        return InputError(what, where="--without", fix=fix)
    fix = "replay fewer ranks, or record again with a current profiler"
    return InputError("operations of the trace wait for each other in a circle", where="the trace", fix=fix)
