"""What happened when, on which ranks: simulated or measured, one type for both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from planner.plan.model import Breakdown
from planner.plan.task import STREAMS, Phase
from planner.simulate.alike import alike
from planner.simulate.breakdown import Span, busy_seconds
from planner.specs.base import Ranks, Source


class Event(NamedTuple):
    """A task in time, on ranks that started and ended it together. A measured task may have one event per rank."""

    id: str
    phase: Phase
    module: str
    ranks: Ranks
    start: float  # seconds since the step began
    end: float
    comm: float = 0.0  # seconds of it in which the device waits for communication
    source: Source = "measured"
    spread: float = 0.0  # half-width of the 80 % interval over the duration
    cause: str = ""  # id of the task whose end let this one start

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def stream(self) -> str:
        return STREAMS[self.phase]

    @property
    def span(self) -> Span:
        if self.stream != "compute":
            return self.start, self.end, None
        return self.start, self.end, min(1.0, self.comm / self.seconds) if self.end > self.start else 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of one step on the ranks 0 … ranks − 1."""

    events: tuple[Event, ...]
    step_seconds: float
    ranks: int

    def rank_breakdowns(self) -> tuple[Breakdown, ...]:
        """Of each rank; the three parts of each add up to the step."""
        kind = alike(event.ranks for event in self.events)
        spans: dict[int, list[Span]] = {rank: [] for rank in set(kind.values())}
        lists = {ranks: [spans[rank] for rank in ranks if rank in spans] for ranks in {e.ranks for e in self.events}}
        for event in self.events:
            span = event.span
            for of_rank in lists[event.ranks]:
                of_rank.append(span)
        busy = {rank: busy_seconds(of_rank) for rank, of_rank in spans.items()}
        return tuple(self.parts(*busy.get(kind.get(rank, -1), (0.0, 0.0))) for rank in range(self.ranks))

    def parts(self, compute: float, exposed: float) -> Breakdown:
        """Idle is the rest of the step."""
        return Breakdown(compute=compute, exposed_comm=exposed, idle=max(0.0, self.step_seconds - compute - exposed))

    def group_seconds(self) -> dict[tuple[int, str], float]:
        """Forward and backward seconds of each group in each micro-batch."""
        busy: dict[tuple[int, str], float] = {}
        for event in self.events:
            if event.phase in ("F", "B"):
                _, _, row, group = event.id.rsplit("/", 3)
                busy[int(row), group] = busy.get((int(row), group), 0.0) + event.seconds
        return busy

    def breakdown(self) -> Breakdown:
        """Of the mean rank."""
        each = self.rank_breakdowns()
        count = max(1, len(each))
        return self.parts(sum(b.compute for b in each) / count, sum(b.exposed_comm for b in each) / count)

    def busiest_rank(self) -> int:
        """The first of those that idle least."""
        idle = [b.idle for b in self.rank_breakdowns()]
        return idle.index(min(idle))

    def critical_path(self) -> tuple[Event, ...]:
        """From the event that ends last back through the causes, first to last: what the step's length is made of."""
        return tuple(reversed([*self.causes()]))

    def causes(self) -> Iterator[Event]:
        by_id = {event.id: event for event in self.events}
        event = max(self.events, key=lambda e: e.end, default=None)
        while event:
            yield event
            event = by_id.get(event.cause)

    @property
    def spread(self) -> float:
        """Half-width of the step's 80 % interval over the step: all errors along the critical path at once."""
        return self.along_path([event.spread * event.seconds for event in self.critical_path()])

    @property
    def measured_share(self) -> float:
        """Share of the critical path that was priced by a measurement or by a fit of one."""
        trusted = ("measured", "fitted")
        return self.along_path([event.seconds for event in self.critical_path() if event.source in trusted])

    def along_path(self, seconds: list[float]) -> float:
        """Seconds on the critical path as a share of all of it."""
        total = sum(event.seconds for event in self.critical_path())
        return sum(seconds) / total if total else 0.0
