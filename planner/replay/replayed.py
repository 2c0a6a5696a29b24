"""A trace replayed: every step measured beside replayed, by a clock that is told durations and dependencies only.

Durations are the trace's own: of what the host does between two dependencies, of operations, and of the short time from
what let one begin until it did. So an error says that a dependency that was found is wrong. That there is none says
little: a wait that was not found is in the host's time, or in the gaps of the device, which are copied. How much of a
step rests on a kind of dependency is what the step is without it; `explained` is what it is without the gaps of the
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
    """One step of one rank."""

    rank: int
    name: str
    measured: float
    replayed: float

    @property
    def error(self) -> float:
        return abs(self.replayed / self.measured - 1) if self.measured else 0.0


def middle_error(steps: Sequence[StepTimes]) -> float:
    return median([step.error for step in steps]) if steps else 0.0


def worst_error(steps: Sequence[StepTimes]) -> float:
    return max((step.error for step in steps), default=0.0)


class Busy(NamedTuple):
    """Seconds of work on one stream."""

    rank: int
    stream: str
    measured: float
    replayed: float


@dataclass(frozen=True)
class Replay:
    """Graphs of one or more ranks, and when everything happened on the clock."""

    graphs: tuple[Graph, ...]
    met: tuple[Met, ...]
    wired: Wired
    times: ClockTimes
    notes: tuple[str, ...]

    def piece_end(self, g: int, number: int) -> float:
        return float(self.times.ends[self.wired.pieces[g] + number])

    def op_times(self, g: int) -> tuple[Times, Times]:
        """When each operation began, after its stream's own pace, and ended."""
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
        """Of each rank, in order."""
        found = []
        for g, graph in enumerate(self.graphs):
            for step in graph.steps:
                lasts = self.piece_end(g, step.end.number) - self.piece_end(g, step.begin.number)
                found.append(StepTimes(rank_of(self.graphs, g), step.name, step.seconds, lasts))
        return found

    @property
    def median_error(self) -> float:
        return middle_error(self.steps)

    @property
    def worst_error(self) -> float:
        return worst_error(self.steps)

    @property
    def step_seconds(self) -> float:
        """The median step as replayed; of several ranks, of the slowest of each step."""
        return median(self.slowest(replayed=True)) if self.steps else 0.0

    @property
    def measured_step_seconds(self) -> float:
        return median(self.slowest(replayed=False)) if self.steps else 0.0

    def slowest(self, *, replayed: bool) -> list[float]:
        """Of each step, by its name, on whichever rank takes longest."""
        longest: dict[str, float] = {}
        for step in self.steps:
            seconds = step.replayed if replayed else step.measured
            longest[step.name] = max(seconds, longest.get(step.name, 0.0))
        return [*longest.values()]

    def windows(self, g: int) -> list[tuple[float, float]]:
        return [(self.piece_end(g, s.begin.number), self.piece_end(g, s.end.number)) for s in self.graphs[g].steps]

    def breakdown(self, g: int = 0) -> Breakdown:
        """Of one rank's mean step, as replayed."""
        graph = self.graphs[g]
        if not graph.work:  # the host computes
            spans = graph.trace.host
            operators = ~spans.annotation
            measured = [(step.begin.end, step.end.end) for step in graph.steps]
            return breakdown(graph.trace, spans.start[operators], spans.end[operators], measured)
        return breakdown(graph.trace, *self.op_times(g), self.windows(g))

    def busy(self) -> list[Busy]:
        """Every stream, measured beside replayed."""
        found = []
        for g, graph in enumerate(self.graphs):
            starts, ends = self.op_times(g)
            ops = graph.trace.ops
            on = np.fromiter((op.stream for op in ops), dtype=np.int64, count=len(ops))
            lasted = np.fromiter((op.end - op.start for op in ops), dtype=np.float64, count=len(ops))
            measured, replayed = (
                np.bincount(on, weights=each, minlength=len(graph.trace.streams)) for each in (lasted, ends - starts)
            )
            for stream, name in enumerate(graph.trace.streams):
                found.append(Busy(rank_of(self.graphs, g), name, float(measured[stream]), float(replayed[stream])))
        return found

    @cached_property
    def copied(self) -> "Copied":
        """What of the traces is in a replay as it was."""
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
    """Seconds that nobody found a reason for, or that need none; they are replayed as they were."""

    host: float  # of all threads, between what they wait for
    gaps: float  # from a launch until its operation begins, and between operations: the device's own pace
    unseen: float  # of the device beyond that, and of calls that synchronise with nothing that was found
    launched: int  # operations with a launch in the trace
    operations: int


def replay(
    graphs: Sequence[Graph], without: Collection[Kind] = (), *, in_order: bool = False, changes: Sequence[str] = ()
) -> Replay:
    """All ranks on one clock; `in_order`: streams keep the order that they had; `changes`: what was asked, for errors.

    Raises InputError when what is left of the dependencies is a circle.
    """
    met, notes = collectives(graphs) if len(graphs) > 1 else ([], [])
    begins, _ = offsets(graphs) if len(graphs) > 1 else ([0.0] * len(graphs), True)
    made = wired(graphs, without, [each.meeting for each in met], begins, in_order=in_order)
    times, ended = run(made.activities)
    if not ended.all():
        raise circle(without, changes)
    return Replay(tuple(graphs), tuple(met), made, times, tuple(notes))


def circle(without: Collection[Kind], changes: Sequence[str]) -> InputError:
    if changes:
        what = f"with {', '.join(changes)} what is left waits for itself in a circle"
        return InputError(what, where=changes[-1], fix="ask for less at once")
    if without:
        what, fix = (
            f"without {', '.join(sorted(without))} the rest waits for itself in a circle",
            "leave out another kind",
        )
        return InputError(what, where="--without", fix=fix)
    fix = "replay fewer ranks, or record again with a current profiler"
    return InputError("what the trace shows waits for itself in a circle", where="the trace", fix=fix)
