"""What happened when, on which ranks: simulated or measured, one type for both."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.plan.model import Breakdown
from planner.plan.task import STREAMS, Phase
from planner.simulate.breakdown import Span, busy_seconds
from planner.simulate.same_tasks import of_same_tasks
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
    """The events of one step on the ranks 0 … ranks − 1.

    Of very many ranks only some were simulated: each of the others does at every moment just what one of these does.
    `like` says whose part it has; ranks that it leaves out were simulated themselves, as all are where it is empty.
    What the group of a rank does has events only where it was simulated; what all ranks of a stage do together names
    them all. What is told here of ranks, groups and their means is of all of them.
    """

    events: tuple[Event, ...]
    step_seconds: float
    ranks: int
    like: dict[int, int] = field(default_factory=dict)  # rank → the rank that was simulated for it
    groups: dict[str, str] = field(default_factory=dict)  # group → the group that was simulated for it
    group_of: dict[int, str] = field(default_factory=dict)  # rank that was not simulated → its group

    def simulated_for(self, rank: int) -> int:
        """The rank whose events are this rank's too: itself, if it was simulated."""
        return self.like.get(rank, rank)

    def task_for(self, id: str) -> str:
        """The task whose events are this task's too: itself, if its group was simulated."""
        head, rest = "", id
        while self.groups and "/" in rest:  # the group's own name may hold anything
            first, _, rest = rest.partition("/")
            head += f"{first}/"
            if rest in self.groups:
                return head + self.groups[rest]
        return id

    def doing(self) -> Callable[[Ranks], int]:
        """How many of all ranks do what these ranks of an event do: they, and those that are like them."""
        of = Counter(self.like.values())
        return lambda ranks: sum(1 + of[rank] for rank in ranks if rank not in self.like)

    def rank_breakdowns(self) -> tuple[Breakdown, ...]:
        """Of each rank; the three parts of each add up to the step."""
        sets = {event.ranks: [r for r in event.ranks if r not in self.like] for event in self.events}
        kind = of_same_tasks(Ranks(ranks) for ranks in sets.values())
        spans: dict[int, list[Span]] = {rank: [] for rank in set(kind.values())}
        lists = {ranks: [spans[rank] for rank in simulated if rank in spans] for ranks, simulated in sets.items()}
        for event in self.events:
            span = event.span
            for of_rank in lists[event.ranks]:
                of_rank.append(span)
        parts = {rank: self.parts(*busy_seconds(of_rank)) for rank, of_rank in spans.items()}
        idle = self.parts(0.0, 0.0)
        return tuple(parts.get(kind.get(self.simulated_for(rank), -1), idle) for rank in range(self.ranks))

    def parts(self, compute: float, exposed: float) -> Breakdown:
        """Idle is the rest of the step."""
        return Breakdown(compute=compute, exposed_comm=exposed, idle=max(0.0, self.step_seconds - compute - exposed))

    def group_seconds(self) -> dict[tuple[int, str], float]:
        """Forward and backward seconds of each group in each micro-batch."""
        busy: dict[tuple[int, str], float] = {}
        for (_, row, group), seconds in self.module_seconds().items():
            busy[row, group] = busy.get((row, group), 0.0) + seconds
        return busy

    def module_seconds(self) -> dict[tuple[str, int, str], float]:
        """The same of each module by itself."""
        busy: dict[tuple[str, int, str], float] = {}
        for event in self.events:
            if event.phase in ("F", "B", "I", "W"):
                layers, _, row, group = event.id.rsplit("/", 3)
                key = layers.rpartition("[")[0], int(row), group
                busy[key] = busy.get(key, 0.0) + event.seconds
        first = [(key, seconds) for key, seconds in busy.items() if self.groups]
        for group, of in self.groups.items():
            busy.update({(module, row, group): seconds for (module, row, name), seconds in first if name == of})
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
