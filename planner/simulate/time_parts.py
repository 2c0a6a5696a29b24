"""Where the time of each rank goes, task by task: what it computes and exchanges, and on whom it waits while idle.

While a rank is idle, its next task waits for another's end, that one started at the end of a third, and so on: this
chain of causes has a task at every moment, so each moment of idle time is put down to the task that ran then.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from planner.plan.mesh.identical_groups import representative_ranks
from planner.simulate.timeline import TaskEvent, Timeline
from planner.specs.base import Ranks

Use = Literal["compute", "exchange", "transfer", "wait"]  # exchange: within passes, while the device waits for it
TINY = 1e-12  # seconds: rounding of times that are equal


class TimePart(NamedTuple):
    """Seconds of a rank from `start` on, and the task that they go into; of a wait, the one that ran elsewhere."""

    use: Use
    event: TaskEvent | None  # None: a wait on nothing known, as before the first task
    start: float
    seconds: float


def mean_seconds(timeline: Timeline, name: Callable[[TimePart], str]) -> dict[str, float]:
    """Seconds of the mean rank by what `name` calls each part; they add up to the step."""
    seconds_by_name: defaultdict[str, float] = defaultdict(float)
    counts = rank_counts(timeline)
    for rank, parts in rank_parts(timeline, tuple(counts)).items():
        for part in parts:
            seconds_by_name[name(part)] += part.seconds * counts[rank] / timeline.ranks
    return dict(seconds_by_name)


def rank_counts(timeline: Timeline) -> dict[int, int]:
    """How many ranks of the job do what each of some does; together all of them. -1: those without a task."""
    sets = {event.ranks: [r for r in event.ranks if r not in timeline.representative_rank] for event in timeline.events}
    kind = representative_ranks(Ranks(ranks) for ranks in sets.values())
    return Counter(kind.get(timeline.representative_of(rank), -1) for rank in range(timeline.ranks))


def rank_parts(timeline: Timeline, ranks: Sequence[int]) -> dict[int, list[TimePart]]:
    """The parts of some simulated ranks, in the order of time, without gaps from 0 to the end of the step."""
    of_rank: dict[int, list[TaskEvent]] = {rank: [] for rank in ranks}
    by_id = {event.id: event for event in timeline.events}
    last = max(timeline.events, key=lambda event: event.end, default=None)
    for event in timeline.events:
        if event.seconds > TINY:
            for rank in event.ranks:
                if rank in of_rank:
                    of_rank[rank].append(event)
    return {rank: [*parts_of_rank(events, timeline.step_seconds, by_id, last)] for rank, events in of_rank.items()}


def parts_of_rank(
    events: Sequence[TaskEvent], end: float, by_id: dict[str, TaskEvent], last: TaskEvent | None
) -> Iterator[TimePart]:
    """The parts of one rank with these tasks; `last`: the task at whose end the step ends."""
    rising = sorted(events, key=lambda event: (event.start, event.end))
    times = sorted({0.0, end, *(event.start for event in rising), *(event.end for event in rising)})
    running: list[TaskEvent] = []
    at = 0
    for start, stop in pairwise(times):
        while at < len(rising) and rising[at].start <= start:
            running.append(rising[at])
            at += 1
        running = [event for event in running if event.end > start]
        if running:
            yield from busy_parts(running, start, stop - start)
        elif stop - start > TINY:
            following = rising[at] if at < len(rising) else None
            yield from waits(following, last, by_id, start, stop)


def busy_parts(running: Sequence[TaskEvent], start: float, seconds: float) -> Iterator[TimePart]:
    """The parts of a moment in which tasks run: shared by those that compute, else by transfers alone."""
    computing = [event for event in running if event.stream == "compute"]
    if not computing:
        for event in running:
            yield TimePart("transfer", event, start, seconds / len(running))
        return
    waiting = min(event.busy_span[2] or 0.0 for event in computing)
    for event in computing:
        yield TimePart("compute", event, start, seconds * (1.0 - waiting) / len(computing))
        if waiting:
            yield TimePart("exchange", event, start, seconds * waiting / len(computing))


def waits(
    following: TaskEvent | None, last: TaskEvent | None, by_id: dict[str, TaskEvent], start: float, stop: float
) -> Iterator[TimePart]:
    """The parts of an idle time before a rank's `following` task, or at the end of the step, latest first."""
    event = by_id.get(following.cause) if following else last
    while event and stop - start > TINY:
        begin = max(start, event.start)
        if stop - begin > TINY:
            yield TimePart("wait", event, begin, stop - begin)
            stop = begin
        event = by_id.get(event.cause)
    if stop - start > TINY:
        yield TimePart("wait", None, start, stop - start)


class ModuleWait(NamedTuple):
    """Idle time of a rank while another module works elsewhere, or its outputs are on their way."""

    module: str
    start: float
    end: float


def waits_for_modules(timeline: Timeline, ranks: Sequence[int]) -> dict[int, list[ModuleWait]]:
    """When some simulated ranks wait for an encoder, or for a module that they do not hold, in the order of time; none
    of a recording, which knows no causes, or of a rank without a module.
    """
    encoders = {event.module for event in timeline.events if is_feed(event)}
    if not encoders or not any(event.cause for event in timeline.events):
        return {rank: [] for rank in ranks}
    found: dict[int, list[ModuleWait]] = {}
    for rank, parts in rank_parts(timeline, ranks).items():
        held = {part.event.module for part in parts if part.event and part.use != "wait"}
        others = [
            (part.start, part.start + part.seconds, part.event.module)
            for part in parts
            if held
            and part.use == "wait"
            and part.event
            and (part.event.module in encoders or part.event.module not in held)
        ]
        found[rank] = joined_waits(sorted(others))
    return found


def joined_waits(waits: Iterable[tuple[float, float, str]]) -> list[ModuleWait]:
    """Waits for the same module that follow one another without a gap, as one."""
    found: list[ModuleWait] = []
    for start, end, module in waits:
        if found and found[-1].module == module and start - found[-1].end <= TINY:
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(ModuleWait(module, start, end))
    return found


def is_feed(event: TaskEvent) -> bool:
    """Whether a transfer brings outputs of an encoder to who reads them, or their gradients back."""
    return event.phase in ("send", "recv") and ">" in event.id.rpartition("/")[2]
