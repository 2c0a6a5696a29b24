"""The timeline of a step: which task ran when on which ranks, simulated or measured."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.plan.mesh.identical_groups import representative_ranks
from planner.plan.plan_file import Breakdown
from planner.plan.task import PHASE_STREAMS, Phase
from planner.specs.base import Ranks, Source

BusySpan = tuple[float, float, float | None]  # start, end, share of it that a compute task waits; None: communication


class TaskEvent(NamedTuple):
    """A task on ranks that started and ended it together. A measured task may have one event per rank."""

    id: str
    phase: Phase
    module: str
    ranks: Ranks
    start: float  # seconds since the step began
    end: float
    comm: float = 0.0  # seconds within it that the device waits for communication
    source: Source = "measured"
    spread: float = 0.0  # half-width of the 80 % interval, relative to the duration
    cause: str = ""  # id of the task whose end let this one start; "": none

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def stream(self) -> str:
        return PHASE_STREAMS[self.phase]

    @property
    def busy_span(self) -> BusySpan:
        if self.stream != "compute":
            return self.start, self.end, None
        return self.start, self.end, min(1.0, self.comm / self.seconds) if self.end > self.start else 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of one step on the ranks 0 … ranks − 1.

    In a large job only some ranks are simulated, and each of the others behaves identically to one of these, its
    `representative_rank`; ranks missing there were simulated themselves. Tasks of a single group have events only for
    groups that were simulated; tasks of all ranks of a stage name them all. All methods answer for all ranks and
    groups, simulated or represented.
    """

    events: tuple[TaskEvent, ...]
    step_seconds: float
    ranks: int
    representative_rank: dict[int, int] = field(default_factory=dict)  # rank → the simulated rank that represents it
    representative_group: dict[str, str] = field(default_factory=dict)  # group → the simulated group that represents it
    # Rank that was not simulated → its own groups, and those that share ranks or items with them
    groups_of: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def representative_of(self, rank: int) -> int:
        """The simulated rank that represents this one: itself, if it was simulated."""
        return self.representative_rank.get(rank, rank)

    def representative_task(self, id: str) -> str:
        """The id of the simulated task that represents this one: itself, if its group was simulated."""
        head, rest = "", id
        while self.representative_group and "/" in rest:  # names of groups may contain slashes
            first, _, rest = rest.partition("/")
            head += f"{first}/"
            if rest in self.representative_group:
                return head + self.representative_group[rest]
        return id

    def rank_multiplicity(self) -> Callable[[Ranks], int]:
        """A function from the ranks of an event to how many ranks of the job do the same, represented ones included."""
        represented = Counter(self.representative_rank.values())
        return lambda ranks: sum(1 + represented[rank] for rank in ranks if rank not in self.representative_rank)

    def rank_breakdowns(self) -> tuple[Breakdown, ...]:
        """Compute, exposed communication and idle seconds of each rank, which add up to the step."""
        sets = {event.ranks: [r for r in event.ranks if r not in self.representative_rank] for event in self.events}
        kind = representative_ranks(Ranks(ranks) for ranks in sets.values())
        spans: dict[int, list[BusySpan]] = {rank: [] for rank in set(kind.values())}
        lists = {ranks: [spans[rank] for rank in simulated if rank in spans] for ranks, simulated in sets.items()}
        for event in self.events:
            span = event.busy_span
            for of_rank in lists[event.ranks]:
                of_rank.append(span)
        parts = {rank: self.breakdown_of(*busy_seconds(of_rank)) for rank, of_rank in spans.items()}
        idle = self.breakdown_of(0.0, 0.0)
        return tuple(parts.get(kind.get(self.representative_of(rank), -1), idle) for rank in range(self.ranks))

    def breakdown_of(self, compute: float, exposed: float) -> Breakdown:
        """A breakdown whose idle time is the rest of the step."""
        return Breakdown(compute=compute, exposed_comm=exposed, idle=max(0.0, self.step_seconds - compute - exposed))

    def group_seconds(self) -> dict[tuple[int, str], float]:
        """Forward and backward seconds by (micro-batch, group)."""
        busy: dict[tuple[int, str], float] = {}
        for (_, micro_batch, group), seconds in self.module_seconds().items():
            busy[micro_batch, group] = busy.get((micro_batch, group), 0.0) + seconds
        return busy

    def module_seconds(self) -> dict[tuple[str, int, str], float]:
        """Forward and backward seconds by (module, micro-batch, group)."""
        busy: dict[tuple[str, int, str], float] = {}
        for event in self.events:
            if event.phase in ("F", "B", "I", "W"):
                layers, _, micro_batch, group = event.id.rsplit("/", 3)
                key = layers.rpartition("[")[0], int(micro_batch), group
                busy[key] = busy.get(key, 0.0) + event.seconds
        by_group: dict[str, list[tuple[str, int, float]]] = {}
        for (module, number, name), seconds in busy.items() if self.representative_group else ():
            by_group.setdefault(name, []).append((module, number, seconds))
        for group, of in self.representative_group.items():
            busy |= {(module, number, group): seconds for module, number, seconds in by_group.get(of, ())}
        return busy

    def breakdown(self) -> Breakdown:
        """The breakdown of the mean rank."""
        each = self.rank_breakdowns()
        count = max(1, len(each))
        return self.breakdown_of(sum(b.compute for b in each) / count, sum(b.exposed_comm for b in each) / count)

    def busiest_rank(self) -> int:
        """The rank that idles least; of several the first."""
        idle = [b.idle for b in self.rank_breakdowns()]
        return idle.index(min(idle))

    def critical_path(self) -> tuple[TaskEvent, ...]:
        """The chain of causes of the event that ends last, first to last; its durations add up to the step."""
        by_id = {event.id: event for event in self.events}
        event, path = max(self.events, key=lambda event: event.end, default=None), list[TaskEvent]()
        while event is not None:
            path.append(event)
            event = by_id.get(event.cause)
        return tuple(reversed(path))

    @property
    def spread(self) -> float:
        """Half-width of the step's 80 % interval, relative to the step: errors along the critical path all add up."""
        return path_share(self.critical_path(), lambda event: event.spread)

    @property
    def measured_share(self) -> float:
        """Share of the critical path whose price is a measurement or a fit of measurements."""
        return path_share(self.critical_path(), lambda event: float(event.source in ("measured", "fitted")))


def path_share(path: Sequence[TaskEvent], share: Callable[[TaskEvent], float]) -> float:
    """The mean of some share of the events of a path, by their seconds."""
    total = sum(event.seconds for event in path)
    return sum(share(event) * event.seconds for event in path) / total if total else 0.0


def busy_seconds(spans: Iterable[BusySpan]) -> tuple[float, float]:
    """Seconds of compute and of exposed communication on one rank.

    Communication is exposed while no compute task runs, and so is the time that compute tasks spend waiting for
    communication; of tasks that share the device, the one that waits least counts.
    """
    changes: list[tuple[float, int, float | None]] = []
    for start, end, waiting in spans:
        if end > start:
            changes += [(start, 1, waiting), (end, -1, waiting)]
    changes.sort(key=lambda change: change[:2])
    computing: list[float] = []
    transfers, last, compute, exposed = 0, 0.0, 0.0, 0.0
    for now, step, waiting in changes:
        if computing:
            compute += (now - last) * (1 - min(computing))
            exposed += (now - last) * min(computing)
        elif transfers:
            exposed += now - last
        last = now
        if waiting is None:
            transfers += step
        elif step > 0:
            computing.append(waiting)
        else:
            computing.remove(waiting)
    return compute, exposed
