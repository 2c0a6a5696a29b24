"""A trace replayed: every step measured beside replayed, by a clock that is told durations and dependencies only.

Durations are the trace's own: of what the host does between two dependencies, of operations, and of the short time from
what let one begin until it did. So an error says that dependencies are missing or wrong, and none says that those found
suffice, not that another run would take as long. What waits, for how long, is found anew.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

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
        return median([step.error for step in self.steps]) if self.steps else 0.0

    @property
    def worst_error(self) -> float:
        return max((step.error for step in self.steps), default=0.0)

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
            seconds = (ends - starts).tolist()
            for stream, name in enumerate(graph.trace.streams):
                mine = [i for i, op in enumerate(graph.trace.ops) if op.stream == stream]
                measured = sum(graph.trace.ops[i].end - graph.trace.ops[i].start for i in mine)
                found.append(Busy(rank_of(self.graphs, g), name, measured, sum(seconds[i] for i in mine)))
        return found

    @property
    def unseen(self) -> float:
        """Seconds before operations that nothing in the traces explains."""
        return sum(work.unseen for graph in self.graphs for work in graph.work)


def replay(graphs: Sequence[Graph], without: Collection[Kind] = ()) -> Replay:
    """All ranks on one clock. Raises InputError when what is left of the dependencies is a circle."""
    met, notes = collectives(graphs) if len(graphs) > 1 else ([], [])
    begins, _ = offsets(graphs) if len(graphs) > 1 else ([0.0] * len(graphs), True)
    made = wired(graphs, without, [each.meeting for each in met], begins)
    times, ended = run(made.activities)
    if not ended.all():
        raise circle(without)
    return Replay(tuple(graphs), tuple(met), made, times, tuple(notes))


def circle(without: Collection[Kind]) -> InputError:
    if without:
        what, fix = (
            f"without {', '.join(sorted(without))} the rest waits for itself in a circle",
            "leave out another kind",
        )
        return InputError(what, where="--without", fix=fix)
    fix = "replay fewer ranks, or record again with a current profiler"
    return InputError("what the trace shows waits for itself in a circle", where="the trace", fix=fix)
