"""What a rank executed, in seconds: once a step is over, since nobody waits for a clock while it lasts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.launch.meter import Meter
from planner.plan.task import Phase, Task
from planner.runtime.clock import Call, Clock, Mark
from planner.runtime.records import Meeting, Pass

Place = tuple[str, int, int | None]  # module, last layer, micro-batch

INNER: tuple[Phase, ...] = ("gather", "sync")


@dataclass(slots=True)
class Noted:
    """A task that this rank executed."""

    task: Task
    start: Mark
    end: Mark
    calls: list[Call]
    meter: Meter


def passes(noted: Sequence[Noted], inside: Sequence[Task], clock: Clock) -> Iterator[Pass]:
    """Each task, and each collective with the task that it belongs to. `inside`: gathers and syncs that FSDP2 does in
    the passes of their micro-batch.
    """
    inner = {(task.phase, place(task)): task.id for task in inside}
    for note in noted:
        at = place(note.task)
        meetings: dict[Phase, tuple[Meeting, ...]] = {
            phase: tuple(meeting(call, inner[phase, at], clock) for call in note.calls if call.phase == phase)
            for phase in INNER
            if (phase, at) in inner
        }
        outer = [call for call in note.calls if call.phase not in meetings]
        yield Pass(
            id=note.task.id,
            start=clock.seconds(note.start),
            end=clock.seconds(note.end),
            comm=note.meter.seconds,
            sent_bytes=note.meter.bytes + sum(call.sent_bytes for call in outer),
            gathers=meetings.get("gather", ()),
            syncs=meetings.get("sync", ()),
            blocking=clock.device.type == "cpu",
            opens=inner.get(("gather", at), "") if note.task.phase == "F" else "",
            closes=inner.get(("sync", at), "") if note.task.phase in ("B", "W") else "",
            together=note.task.phase in ("gather", "sync"),
        )


def place(task: Task) -> Place:
    """Where gathers and syncs find the passes that they belong to."""
    return task.module, task.layers[-1], task.micro_batch


def meeting(call: Call, id: str, clock: Clock) -> Meeting:
    return Meeting(id, clock.seconds(call.start), clock.seconds(call.end), call.sent_bytes)
