"""Jobs one after the other in some order: each gets a kind that has room, and those behind who waits may go ahead.

**Backfilling** (EASY: Lifka 1995). The first job that does not fit has a reservation: on the kind where it ends first,
from the time when enough GPUs of it are free. A job behind it starts only where that time stays: on another kind, or
if it ends before, or on GPUs that are free then besides. Those behind it are looked at until `DEPTH` of them stay
waiting, as many as Slurm's `default_queue_depth`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import itemgetter

from planner.policies.orders import Order, seconds_left
from planner.policies.want import Want, Wants
from planner.simulate import Event, JobState, State

DEPTH = 100
Place = Callable[[State, JobState, Iterable[str]], str]  # which of the kinds that have room; they are at least one


def first_kind(state: State, job: JobState, kinds: Iterable[str]) -> str:
    """The first in alphabetical order."""
    return next(iter(kinds))


def fastest_kind(state: State, job: JobState, kinds: Iterable[str]) -> str:
    """The one on which it ends first."""
    return min(kinds, key=lambda kind: seconds_left(state, job, kind, job.job.gpus))


@dataclass(slots=True)
class Reservation:
    """What the first job that does not fit will get, and when."""

    job: str
    kind: str
    at: float
    spare: int  # GPUs that are free then besides

    def allows(self, kind: str, count: int, end: float) -> bool:
        """Whether a job may start there now; what it then has for longer is no longer spare."""
        if kind != self.kind or end <= self.at:
            return True
        self.spare -= count
        if self.spare >= 0:
            return True
        self.spare += count
        return False


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """An order, and the kind that each job gets. `preempt`: running jobs are in the queue with the others."""

    order: Order
    place: Place
    backfill: bool = True
    preempt: bool = False

    def wants(self, state: State, event: Event | None = None) -> Wants:
        """Jobs that start now; with `preempt`: those that run from now on. `event`: since when nothing could start."""
        room = state.room_of_all() if self.preempt else state.free_counts()
        wants: dict[str, Want] = {}
        reservation: Reservation | None = None
        queue, most = self.queue(state, event), max(room.values())
        behind = 0 if self.preempt else len(state.waiting) - len(queue)
        for job in queue:
            if not most or behind >= DEPTH:
                break
            want = None if reservation and job.job.gpus > most else self.want(state, job, room, reservation)
            if want:
                wants[job.job.id] = want
                room[want.kind] -= want.gpus
                most = max(room.values())
            elif not self.backfill:
                break
            elif reservation:
                behind += 1
            elif not self.preempt:
                reservation = reserve(state, job, wants)
        return wants

    def queue(self, state: State, event: Event | None) -> Collection[JobState]:
        """Jobs in their order. Where jobs arrive behind one that does not fit, none between them can start: nothing
        became free, and until the reservation there is less time than before.
        """
        if event and self.order.key is None and all(what == "arrival" for what, _ in event.happened):
            arrived = [job for _, job in event.happened]
            first = next(iter(state.waiting))
            if first not in arrived:
                return [state.waiting[job] for job in (first, *arrived)]
        return self.order.queue(state, self.preempt)

    def want(
        self, state: State, job: JobState, room: Mapping[str, int], reservation: Reservation | None
    ) -> Want | None:
        """The kind that a job gets now; None: it waits."""
        count = job.job.gpus
        fitting = [kind for kind in job.kinds if room[kind] >= count]
        while fitting:
            kind = self.place(state, job, fitting) if len(fitting) > 1 else fitting[0]
            if reservation is None:
                return Want(kind, count, self.order.why)
            if reservation.allows(kind, count, state.now + seconds_left(state, job, kind, count)):
                return Want(kind, count, f"goes ahead of {reservation.job}, whose {reservation.kind} it leaves alone")
            fitting.remove(kind)
        return None


def reserve(state: State, head: JobState, wants: Wants) -> Reservation:
    """Where and when a job that does not fit starts, if all others run as long as is known of them."""
    room = state.free_counts()
    ends: dict[str, list[tuple[float, int]]] = {kind: [] for kind in room}
    for run in state.running.values():
        ends[run.kind].append((run.end, len(run.gpus)))
    for job, want in wants.items():
        room[want.kind] -= want.gpus
        end = state.now + seconds_left(state, state.waiting[job], want.kind, want.gpus)
        ends[want.kind].append((end, want.gpus))
    best, best_end = Reservation(head.job.id, "", inf, 0), inf
    for kind in head.kinds:
        for end, together in groupby(sorted(ends[kind]), key=itemgetter(0)):
            room[kind] += sum(count for _, count in together)
            if room[kind] >= head.job.gpus:
                ended = end + seconds_left(state, head, kind, head.job.gpus)
                if ended < best_end:
                    best, best_end = Reservation(head.job.id, kind, end, room[kind] - head.job.gpus), ended
                break
    return best
