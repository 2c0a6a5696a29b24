"""Step time by kind of work: predicted and measured seconds of compute, exchanges and waiting."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from planner.plan.task import WORK_OF_PHASE, Task
from planner.simulate import TaskEvent, Timeline, is_feed
from planner.specs.base import Amount, Ranks

EXCHANGE = "exchange between ranks of a group"
STAGE_EXCHANGE = "exchange between stages"
OUTPUT_EXCHANGE = "outputs of encoders to who reads them"
COLLECTIVES_AND_WAIT = "gather, reduce and wait"


@dataclass(frozen=True, slots=True)
class KindSeconds:
    """Predicted and measured seconds of the mean rank in one kind of work."""

    name: str
    predicted: Amount
    measured: Amount


def seconds_by_kind(predicted: Sequence[Timeline], measured: Sequence[Timeline]) -> list[KindSeconds]:
    """Seconds by kind of work, over the mean step of either side; the kinds add up to the step.

    Runs measure waiting inside the collective that waits, so collectives of all ranks and waiting are one kind.
    """
    expected, found = mean_seconds_by_kind(predicted), mean_seconds_by_kind(measured)
    return [
        KindSeconds(name, expected.get(name, 0.0), found.get(name, 0.0))
        for name in (
            *dict.fromkeys(WORK_OF_PHASE.values()),
            EXCHANGE,
            STAGE_EXCHANGE,
            OUTPUT_EXCHANGE,
            COLLECTIVES_AND_WAIT,
        )
    ]


def mean_seconds_by_kind(timelines: Sequence[Timeline]) -> dict[str, float]:
    """Seconds by kind of work, over the mean step."""
    parts: dict[str, float] = {}
    for timeline in timelines:
        for name, seconds in step_seconds_by_kind(timeline).items():
            parts[name] = parts.get(name, 0.0) + seconds / len(timelines)
    return parts


def step_seconds_by_kind(timeline: Timeline) -> dict[str, float]:
    """Seconds of the mean rank in one step, by kind of work."""
    parts, doing = dict.fromkeys((*WORK_OF_PHASE.values(), EXCHANGE), 0.0), timeline.rank_multiplicity()
    for event in timeline.events:
        if event.phase in WORK_OF_PHASE:
            ranks = doing(event.ranks) / timeline.ranks
            parts[WORK_OF_PHASE[event.phase]] += (event.seconds - event.comm) * ranks
            parts[EXCHANGE] += event.comm * ranks
    without_feeds = [event for event in timeline.events if not is_feed(event)]
    parts[STAGE_EXCHANGE] = exposed_transfer_seconds(timeline, without_feeds)
    feeding = exposed_transfer_seconds(timeline, timeline.events) - parts[STAGE_EXCHANGE]
    parts[OUTPUT_EXCHANGE] = max(0.0, feeding)
    parts[COLLECTIVES_AND_WAIT] = max(0.0, timeline.step_seconds - sum(parts.values()))
    return parts


def exposed_transfer_seconds(timeline: Timeline, events: Iterable[TaskEvent]) -> float:
    """Exposed seconds of the mean rank in point-to-point transfers, of some of the events of a timeline."""
    moved: dict[int, list[tuple[float, float]]] = defaultdict(list)
    busy: dict[int, list[tuple[float, float]]] = defaultdict(list)
    doing = timeline.rank_multiplicity()
    for event in events:
        if event.phase in WORK_OF_PHASE or event.phase in ("send", "recv"):
            of_kind = busy if event.phase in WORK_OF_PHASE else moved
            for rank in event.ranks:
                of_kind[rank].append((event.start, event.end))
    each = ((rank, union_seconds([*spans, *busy[rank]]) - union_seconds(busy[rank])) for rank, spans in moved.items())
    return sum(seconds * doing(Ranks((rank,))) for rank, seconds in each) / timeline.ranks


def union_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in the union of these intervals."""
    seconds, reached = 0.0, 0.0
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """One task as one rank measured it; times in seconds since the step began, `comm` in seconds."""

    id: str
    rank: int
    start: float
    end: float
    comm: float


def measured_timeline(
    records: Iterable[MeasuredTask], tasks: Sequence[Task], ranks: int, step_seconds: float
) -> Timeline:
    """Measured tasks as a timeline like the simulator's, with one event for each task and rank.

    A receive begins no earlier than its send: until then the rank was idle.
    """
    by_id, measured = {task.id: task for task in tasks}, [*records]
    sent = {(r.id, r.rank): r.start for r in measured if by_id[r.id].phase == "send"}
    moved = [
        replace(r, start=min(r.end, max(r.start, sent.get(awaited_send(by_id[r.id], r.rank), r.start))))
        for r in measured
    ]
    events = tuple(
        TaskEvent(
            r.id, by_id[r.id].phase, by_id[r.id].module, type(by_id[r.id].ranks)((r.rank,)), r.start, r.end, r.comm
        )
        for r in sorted(moved, key=lambda r: (r.start, r.rank, r.id))
    )
    return Timeline(events, step_seconds, ranks)


def awaited_send(task: Task, rank: int) -> tuple[str, int]:
    """Task id and rank of the send that a rank receives in this task; an empty id where it receives nothing."""
    if task.phase != "recv" or len(task.peers) != len(task.ranks):
        return "", rank
    return task.after[0], task.peers[task.ranks.index(rank)]
