"""From what each rank noted while it worked to one record per task and rank.

FSDP2 gathers and reduces layer by layer inside the forward and backward of a micro-batch; the plan's gather and sync
are tasks of their own. So their collectives are drawn together, as the simulator draws them: gathers at the start of a
pass, reductions at the end of the backward, what the pass did itself between them, all within the pass. A collective
begins when its last rank comes to it; what the others wait for it is idle time and in no record.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from planner.runtime.result import Measured


class Meeting(NamedTuple):
    """One collective inside a pass, on one rank, and the task that it belongs to."""

    id: str
    start: float
    end: float
    sent_bytes: int


class Pass(NamedTuple):
    """One task that a rank executed, with the collectives inside it, in seconds since the step began."""

    id: str
    start: float
    end: float
    comm: float = 0.0
    sent_bytes: int = 0
    gathers: tuple[Meeting, ...] = ()
    syncs: tuple[Meeting, ...] = ()
    blocking: bool = True  # its collectives stop its compute, rather than run beside it
    opens: str = ""  # the gather that needs a record here, even when nothing was gathered
    closes: str = ""  # the sync
    together: bool = False  # all ranks execute it, and it begins when the last comes


def records(ranks: Sequence[Sequence[Pass]]) -> Iterator[Measured]:
    """Of every rank, from what each noted."""
    begun = beginnings(ranks)
    for rank, passes in enumerate(ranks):
        starts = {id: iter(of_task) for id, of_task in begun.items()}
        for one in passes:
            held = sum(m.end - m.start for m in (*one.gathers, *one.syncs)) if one.blocking else 0.0
            gathers, syncs = (
                tuple(m._replace(start=min(next(starts[m.id]), m.end)) for m in meetings)
                for meetings in (one.gathers, one.syncs)
            )
            if one.together:
                one = one._replace(start=min(next(starts[one.id]), one.end))
            yield from pass_records(rank, one._replace(gathers=gathers, syncs=syncs), held)


def beginnings(ranks: Sequence[Sequence[Pass]]) -> dict[str, list[float]]:
    """When each task's collectives began, one after the other: when the last rank came to them."""
    begun: dict[str, list[float]] = {}
    for passes in ranks:
        came: dict[str, list[float]] = {}
        for one in passes:
            if one.together:
                came.setdefault(one.id, []).append(one.start)
            for meeting in (*one.gathers, *one.syncs):
                came.setdefault(meeting.id, []).append(meeting.start)
        for id, starts in came.items():
            begun[id] = [max(pair) for pair in zip(begun.get(id, starts), starts, strict=True)]
    return begun


def pass_records(rank: int, one: Pass, held: float) -> Iterator[Measured]:
    """The pass itself without the seconds that it was held up, and what was gathered before and reduced after it."""
    start, length = one.start, one.end - one.start - held
    if one.gathers or one.opens:
        opened = start if one.blocking or not one.gathers else one.gathers[0].start
        gathered = sum(m.end - m.start for m in one.gathers)
        sent = sum(m.sent_bytes for m in one.gathers)
        id = one.gathers[0].id if one.gathers else one.opens
        yield Measured(id, rank, opened, opened + gathered, sent_bytes=sent)
        start += gathered if one.blocking else 0.0
    yield Measured(one.id, rank, start, start + length, one.comm, one.sent_bytes)
    if one.syncs or one.closes:
        closed = one.end if one.blocking or not one.syncs else one.syncs[-1].end
        reduced = sum(m.end - m.start for m in one.syncs)
        sent = sum(m.sent_bytes for m in one.syncs)
        id = one.syncs[0].id if one.syncs else one.closes
        yield Measured(id, rank, closed - reduced, closed, sent_bytes=sent)
