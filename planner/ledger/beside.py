"""Predicted beside measured: where the time of a step was expected, and where it went."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.plan.task import Task
from planner.simulate import Event, Timeline

KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "backward", "update": "update"}
EXCHANGE = "exchange between ranks of a group"
REST = "gather, reduce and wait"


@dataclass(frozen=True, slots=True)
class Kind:
    """Seconds of the mean rank in one kind of work."""

    name: str
    predicted: float
    measured: float


def beside(predicted: Sequence[Timeline], measured: Sequence[Timeline]) -> list[Kind]:
    """Per kind of work, over the mean step of each; the kinds add up to the step.

    What ranks wait for each other is measured inside the collective that lets them wait, so collectives of all ranks
    and waiting stand in one line.
    """
    expected, found = mean_parts(predicted), mean_parts(measured)
    return [
        Kind(name, expected.get(name, 0.0), found.get(name, 0.0))
        for name in (*dict.fromkeys(KINDS.values()), EXCHANGE, REST)
    ]


def mean_parts(timelines: Sequence[Timeline]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for timeline in timelines:
        for name, seconds in step_parts(timeline).items():
            parts[name] = parts.get(name, 0.0) + seconds / len(timelines)
    return parts


def step_parts(timeline: Timeline) -> dict[str, float]:
    """Seconds of the mean rank by kind of work."""
    parts, doing = dict.fromkeys((*KINDS.values(), EXCHANGE), 0.0), timeline.doing()
    for event in timeline.events:
        if event.phase in KINDS:
            ranks = doing(event.ranks) / timeline.ranks
            parts[KINDS[event.phase]] += (event.seconds - event.comm) * ranks
            parts[EXCHANGE] += event.comm * ranks
    parts[REST] = max(0.0, timeline.step_seconds - sum(parts.values()))
    return parts


@dataclass(frozen=True, slots=True)
class Record:
    """One task as one rank measured it, in seconds since the step began."""

    id: str
    rank: int
    start: float
    end: float
    comm: float


def measured_timeline(records: Iterable[Record], tasks: Sequence[Task], ranks: int, step_seconds: float) -> Timeline:
    """What ranks measured, as the same type that the simulator makes: one event for each task and rank."""
    by_id = {task.id: task for task in tasks}
    events = tuple(
        Event(r.id, by_id[r.id].phase, by_id[r.id].module, type(by_id[r.id].ranks)((r.rank,)), r.start, r.end, r.comm)
        for r in sorted(records, key=lambda r: (r.start, r.rank, r.id))
    )
    return Timeline(events, step_seconds, ranks)
