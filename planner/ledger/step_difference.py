"""Attribution of the difference between a measured and a simulated step to tasks, in sums that add up exactly.

The measured critical path is walked back from the task that ends last: each task's predecessor is the one that ended
last before it began, on its own ranks or among those it depends on. Along this path both steps are sums of the same
terms: the gap after the predecessor, the work of the task, its waiting for its group. The differences of the terms
therefore add up to the difference of the steps, and each belongs to a task.

A task that the simulation lacks, or that the run executed a second time, counts with all of its measured time. The time
after the last task of the path is a term of its own: there, the simulation may wait for other tasks.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.plan.task import Phase, Task
from planner.simulate import TaskEvent, Timeline

CLOSE = 2e-9  # seconds: traces have nanosecond resolution
KINDS: dict[Phase, str] = {
    "F": "forward",
    "B": "backward",
    "I": "input gradients",
    "W": "weight gradients",
    "update": "update",
    "gather": "gather",
    "sync": "reduce",
    "send": "send",
    "recv": "receive",
    "offload": "offload",
    "loss": "loss of a task",
}
EXCHANGE, WAIT, END = "exchange between ranks of a group", "wait", "after the last task"


class PathSeconds(NamedTuple):
    """Seconds of a task on the critical path."""

    work: float = 0.0
    exchange: float = 0.0  # communication in its group, waiting included
    wait: float = 0.0  # since the end of the task before; below 0 in a simulation where the two overlapped

    def __sub__(self, other: "PathSeconds") -> "PathSeconds":
        return PathSeconds(*(mine - its for mine, its in zip(self, other, strict=True)))

    @property
    def total(self) -> float:
        return sum(self)


@dataclass(frozen=True, slots=True)
class PathTask:
    """A task on the measured critical path."""

    id: str
    phase: Phase
    rank: int
    simulated: PathSeconds
    measured: PathSeconds

    @property
    def difference(self) -> PathSeconds:
        return self.measured - self.simulated


class DifferenceLine(NamedTuple):
    """Simulated and measured seconds along the path, of one kind of work, one rank or one task."""

    name: str
    simulated: float
    measured: float

    @property
    def difference(self) -> float:
        return self.measured - self.simulated


@dataclass(frozen=True, slots=True)
class StepDifference:
    """One step: the tasks of the path and `end` add up to either step, their differences to the difference."""

    simulated: float  # seconds of the step
    measured: float
    path: tuple[PathTask, ...]  # first to last
    end: DifferenceLine
    unmeasured_tasks: tuple[str, ...]  # tasks of the plan that were not measured, or not on all their ranks

    @property
    def difference(self) -> float:
        return self.measured - self.simulated

    def by_kind(self) -> list[DifferenceLine]:
        """Seconds by kind of work, which add up to the steps; kinds without time are absent."""
        of_kinds: list[tuple[str, float, float]] = []
        for piece in self.path:
            names = (KINDS[piece.phase], EXCHANGE, WAIT)
            of_kinds += zip(names, piece.simulated, piece.measured, strict=True)
        order = [*KINDS.values(), EXCHANGE, WAIT, END]
        lines = sum_by_name([*of_kinds, self.end])
        return sorted((line for line in lines if line.simulated or line.measured), key=lambda k: order.index(k.name))

    def by_rank(self) -> list[DifferenceLine]:
        """Seconds by rank on the path."""
        lines = sum_by_name((str(p.rank), p.simulated.total, p.measured.total) for p in self.path)
        return sorted(lines, key=lambda line: int(line.name))

    def by_task(self) -> list[DifferenceLine]:
        """Seconds by task and of the end, largest difference first."""
        lines = sum_by_name([*((p.id, p.simulated.total, p.measured.total) for p in self.path), self.end])
        return sorted((line for line in lines if line.difference), key=lambda line: (-abs(line.difference), line.name))


def sum_by_name(parts: Iterable[tuple[str, float, float]]) -> list[DifferenceLine]:
    """Sums by name, in the order of first appearance."""
    sums: dict[str, list[float]] = {}
    for name, simulated, measured in parts:
        of_name = sums.setdefault(name, [0.0, 0.0])
        of_name[0] += simulated
        of_name[1] += measured
    return [DifferenceLine(name, *of_name) for name, of_name in sums.items()]


def explain_difference(simulated: Timeline, measured: Timeline, tasks: Sequence[Task]) -> StepDifference:
    """The difference of two timelines of the same tasks."""
    expected = {event.id: event for event in simulated.events}
    pieces, ended = [], 0.0
    expected_end = 0.0  # simulated end of the last task on the path that the simulation has
    for event in reversed([*CriticalPathWalk(measured, tasks).events_backward()]):
        twin = expected.pop(simulated.representative_task(event.id), None)
        pieces.append(
            PathTask(
                event.id,
                event.phase,
                event.ranks[0],
                simulated=path_seconds(twin, expected_end) if twin else PathSeconds(),
                measured=path_seconds(event, ended),
            )
        )
        ended, expected_end = event.end, twin.end if twin else expected_end
    end = DifferenceLine(END, simulated.step_seconds - expected_end, measured.step_seconds - ended)
    return StepDifference(
        simulated.step_seconds, measured.step_seconds, tuple(pieces), end, unmeasured(measured, tasks)
    )


def unmeasured(measured: Timeline, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Tasks that no rank measured, and those that some of their ranks did not measure, with the first such rank."""
    ranks: dict[str, set[int]] = {}
    for event in measured.events:
        ranks.setdefault(event.id, set()).update(event.ranks)
    missing = []
    for task in tasks:
        absent = [rank for rank in task.ranks if rank not in ranks.get(task.id, ())]
        if absent:
            missing.append(f"{task.id} on rank {absent[0]}" if task.id in ranks else task.id)
    return tuple(missing)


def path_seconds(event: TaskEvent, before: float) -> PathSeconds:
    """Seconds of an event whose predecessor ended at `before`."""
    exchange = event.comm if event.stream == "compute" else 0.0
    return PathSeconds(event.seconds - exchange, exchange, event.start - before)


# ------------------------------------------------------------------------------------------------------------ the path


class CriticalPathWalk:
    """Backward walk along the critical path of a measured timeline, by times, as runs record no causes."""

    def __init__(self, measured: Timeline, tasks: Sequence[Task]) -> None:
        self.by_id = {task.id: task for task in tasks}
        place = {task.id: number for number, task in enumerate(tasks)}  # events without duration in program order
        self.events = sorted(measured.events, key=lambda e: (e.end, e.start, place[e.id], e.ranks))
        self.on_rank: dict[int, list[int]] = {}  # numbers of events, by their ends
        self.of_task: dict[str, list[int]] = {}
        for number, event in enumerate(self.events):
            self.of_task.setdefault(event.id, []).append(number)
            for rank in event.ranks:
                self.on_rank.setdefault(rank, []).append(number)

    def events_backward(self) -> Iterator[TaskEvent]:
        """Events of the path, last to first."""
        number: int | None = len(self.events) - 1 if self.events else None
        while number is not None:
            yield self.events[number]
            number = self.predecessor(number)

    def predecessor(self, number: int) -> int | None:
        """The predecessor of an event: of those it may have waited for, the one that ended last; None for the first."""
        event = self.events[number]
        task = self.by_id[event.id]
        nearest = [self.latest_before(self.of_task.get(awaited, ()), number) for awaited in task.after]
        nearest += [self.latest_before(self.on_rank.get(rank, ()), number) for rank in task.ranks]
        candidates = [candidate for candidate in nearest if candidate is not None]
        return max(candidates, key=lambda c: (self.events[c].end, self.tie_preference(c, event), -c), default=None)

    def tie_preference(self, candidate: int, event: TaskEvent) -> tuple[bool, bool]:
        """Preference among events that ended together: dependencies of the plan, then events on its own ranks."""
        other = self.events[candidate]
        return other.id in self.by_id[event.id].after, not set(event.ranks).isdisjoint(other.ranks)

    def latest_before(self, numbers: Sequence[int], number: int) -> int | None:
        """The last of these events, sorted by end, that had ended when event `number` began. None without any."""
        event = self.events[number]
        at = bisect_right(numbers, event.start + CLOSE, key=lambda n: self.events[n].end)
        return next((n for n in reversed(numbers[:at]) if n < number and self.events[n].start <= event.start), None)
