"""Tasks that a rank executed: marks taken during a step, converted to seconds after it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from planner.launch import SentBytes, TrafficKind
from planner.launch.communication import CommunicationMeter
from planner.plan.task import Phase, Task
from planner.runtime.measure.step_clock import CollectiveCall, StepClock, TimeMark
from planner.runtime.measure.task_records import CollectiveSpan, TaskSpan

PassKey = tuple[str, int, int | None]  # module, last layer, micro-batch

INNER: tuple[Phase, ...] = ("gather", "sync")


@dataclass(slots=True)
class ExecutedTask:
    """Marks of a task that this rank executed."""

    task: Task
    start: TimeMark
    end: TimeMark
    calls: list[CollectiveCall]
    meter: CommunicationMeter


def task_spans(executed: Sequence[ExecutedTask], inside: Sequence[Task], clock: StepClock) -> Iterator[TaskSpan]:
    """Time spans of each task, and of the collectives inside it with the task they belong to. `inside`: gathers and
    syncs that FSDP2 executes in the passes of their micro-batch.
    """
    inner = {(task.phase, pass_key(task)): task.id for task in inside}
    for each in executed:
        at = pass_key(each.task)
        collectives: dict[Phase, tuple[CollectiveSpan, ...]] = {
            phase: tuple(collective_span(call, inner[phase, at], clock) for call in each.calls if call.phase == phase)
            for phase in INNER
            if (phase, at) in inner
        }
        other = [call for call in each.calls if call.phase not in collectives]
        yield TaskSpan(
            id=each.task.id,
            start=clock.seconds(each.start),
            end=clock.seconds(each.end),
            comm=each.meter.seconds,
            sent_bytes=each.meter.bytes + sum(call.sent_bytes for call in other),
            gathers=collectives.get("gather", ()),
            syncs=collectives.get("sync", ()),
            blocking=clock.device.type == "cpu",
            gather_id=inner.get(("gather", at), "") if each.task.phase == "F" else "",
            sync_id=inner.get(("sync", at), "") if each.task.phase in ("B", "W") else "",
            collective=each.task.phase in ("gather", "sync"),
        )


def sent_by_kind(executed: Iterable[ExecutedTask]) -> SentBytes:
    """Bytes that this rank sent in its tasks, by what they were sent for."""
    sent: Counter[TrafficKind] = Counter()
    for each in executed:
        sent += each.meter.sent
        sent["dp"] += sum(call.sent_bytes for call in each.calls)
    return dict(+sent)


def pass_key(task: Task) -> PassKey:
    """Key that joins gathers and syncs with the passes that they belong to."""
    return task.module, task.layers[-1], task.micro_batch


def collective_span(call: CollectiveCall, id: str, clock: StepClock) -> CollectiveSpan:
    return CollectiveSpan(id, clock.seconds(call.start), clock.seconds(call.end), call.sent_bytes)
