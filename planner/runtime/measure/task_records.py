"""Turns the time spans of each rank into one record per task and rank.

FSDP2 gathers and reduces layer by layer inside the forward and backward of a micro-batch; in the plan, gather and sync
are tasks of their own. So their collectives are joined as the simulator places them: gathers at the start of a pass,
reductions at the end of the backward, compute between them, all within the pass. A collective begins when its last rank
arrives; the waiting time of the others is idle time and in no record.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from planner.runtime.run_result import TaskRecord


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
    """Records of a pass without the seconds that collectives blocked it, of its gathers before it and reductions after
    it.
    """
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
