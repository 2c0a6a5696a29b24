"""The tasks that ranks executed: marks taken during a step become seconds after it, and one record per task and rank.

FSDP2 gathers and reduces layer by layer inside the forward and backward of a micro-batch; in the plan, gather and sync
are tasks of their own. So their collectives are joined as the simulator places them: gathers at the start of a pass,
reductions at the end of the backward, compute between them, all within the pass. A collective begins when its last rank
arrives; the waiting time of the others is idle time and in no record.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.launch import SentBytes, TrafficKind
from planner.launch.communication import CommunicationMeter
from planner.plan.task import Phase, Task
from planner.runtime.measure.step_clock import CollectiveCall, StepClock, TimeMark
from planner.runtime.run_result import TaskRecord

PassKey = tuple[str, int, int | None]  # module, last layer, micro-batch
INNER: tuple[Phase, ...] = ("gather", "sync")


class CollectiveSpan(NamedTuple):
    """One collective inside a pass, on one rank, and the task that it belongs to."""

    id: str
    start: float
    end: float
    sent_bytes: int


class TaskSpan(NamedTuple):
    """One task that a rank executed, with FSDP2's collectives inside it, in seconds since the step began."""

    id: str
    start: float
    end: float
    comm: float = 0.0
    sent_bytes: int = 0
    gathers: tuple[CollectiveSpan, ...] = ()
    syncs: tuple[CollectiveSpan, ...] = ()
    blocking: bool = True  # whether its collectives block compute, rather than overlap with it
    gather_id: str = ""  # id of the gather that has a record here, even when nothing was gathered
    sync_id: str = ""  # id of the sync
    collective: bool = False  # whether it is a collective of all its ranks, which begins when the last arrives


def task_records(ranks: Sequence[Sequence[TaskSpan]]) -> Iterator[TaskRecord]:
    """Records of all ranks, from the spans of each."""
    begun = collective_starts(ranks)
    for rank, passes in enumerate(ranks):
        starts = {id: iter(of_task) for id, of_task in begun.items()}
        for one in passes:
            blocked = sum(m.end - m.start for m in (*one.gathers, *one.syncs)) if one.blocking else 0.0
            gathers, syncs = (
                tuple(m._replace(start=min(next(starts[m.id]), m.end)) for m in collectives)
                for collectives in (one.gathers, one.syncs)
            )
            if one.collective:
                one = one._replace(start=min(next(starts[one.id]), one.end))
            yield from pass_records(rank, one._replace(gathers=gathers, syncs=syncs), blocked)


def collective_starts(ranks: Sequence[Sequence[TaskSpan]]) -> dict[str, list[float]]:
    """Start times of each task's collectives, in order: when the last rank arrived."""
    begun: dict[str, list[float]] = {}
    for passes in ranks:
        arrivals: dict[str, list[float]] = {}
        for one in passes:
            if one.collective:
                arrivals.setdefault(one.id, []).append(one.start)
            for collective in (*one.gathers, *one.syncs):
                arrivals.setdefault(collective.id, []).append(collective.start)
        for id, starts in arrivals.items():
            begun[id] = [max(pair) for pair in zip(begun.get(id, starts), starts, strict=True)]
    return begun


def pass_records(rank: int, one: TaskSpan, blocked: float) -> Iterator[TaskRecord]:
    """Records of a pass without seconds in which collectives blocked it, its gathers before it, reductions after it."""
    start, length = one.start, one.end - one.start - blocked
    if one.gathers or one.gather_id:
        opened = start if one.blocking or not one.gathers else one.gathers[0].start
        gathered = sum(m.end - m.start for m in one.gathers)
        sent = sum(m.sent_bytes for m in one.gathers)
        id = one.gathers[0].id if one.gathers else one.gather_id
        yield TaskRecord(id, rank, opened, opened + gathered, sent_bytes=sent)
        start += gathered if one.blocking else 0.0
    yield TaskRecord(one.id, rank, start, start + length, one.comm, one.sent_bytes)
    if one.syncs or one.sync_id:
        closed = one.end if one.blocking or not one.syncs else one.syncs[-1].end
        reduced = sum(m.end - m.start for m in one.syncs)
        sent = sum(m.sent_bytes for m in one.syncs)
        id = one.syncs[0].id if one.syncs else one.sync_id
        yield TaskRecord(id, rank, closed - reduced, closed, sent_bytes=sent)


@dataclass(slots=True)
class ExecutedTask:
    """Marks of a task that this rank executed."""

    task: Task
    start: TimeMark
    end: TimeMark
    calls: list[CollectiveCall]
    meter: CommunicationMeter


def task_spans(executed: Sequence[ExecutedTask], inside: Sequence[Task], clock: StepClock) -> Iterator[TaskSpan]:
    """Time spans of tasks and of collectives in them; `inside`: gathers and syncs that FSDP2 executes in passes."""
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
            collective=each.task.phase in ("gather", "sync", "loss"),
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
