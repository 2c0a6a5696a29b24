"""Cells: kind and number of GPUs of every job, and with them its layout, decided together (Crius, arXiv 2403.16125).

Every job has a first cell, in the order, as far as there is room: the least count that is known for it, on the kind
where it then ends first. After that GPUs go where they are worth most (Optimus, EuroSys 2018, section 4.1): a step is
to a larger count of the same kind, and the one that saves most seconds to a job's end per GPU is taken, until none fits
that saves any. Who would have another cell than it has pays its restart in these seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from planner.policies.orders import Order, seconds_left
from planner.policies.want import Want, Wants
from planner.simulate import Event, JobState, State


class Step(NamedTuple):
    """A job's next step, in the order in which steps are taken."""

    loses: float  # seconds to its end per GPU: less than none
    number: int  # first come, first served, where these are equal
    job: JobState
    gpus: int


@dataclass(frozen=True, slots=True)
class CellPolicy:
    """Decides about all jobs anew; the order says who has a first cell before others."""

    order: Order

    def wants(self, state: State, event: Event | None = None) -> Wants:
        """Kinds and counts of all jobs that get any."""
        room, wants, steps = state.room_of_all(), dict[str, Want](), list[Step]()
        for job in self.order.queue(state, preempt=True):
            first = first_cell(state, job, room, self.order.why)
            if first:
                wants[job.job.id] = first
                room[first.kind] -= first.gpus
                push(steps, state, job, first, room)
        while steps:
            step = heappop(steps)
            has = wants[step.job.job.id]
            if step.gpus - has.gpus <= room[has.kind]:
                room[has.kind] -= step.gpus - has.gpus
                has = Want(has.kind, step.gpus, f"saves {-step.loses:,.0f} s a GPU, more than for others")
                wants[step.job.job.id] = has
            push(steps, state, step.job, has, room)
        return wants


def first_cell(state: State, job: JobState, room: Mapping[str, int], why: str) -> Want | None:
    """The least count on the kind where a job then ends first; None: there is no room."""
    least = {kind: min(by_count) for kind, by_count in sorted(job.job.seconds.items())}
    fitting = [kind for kind, count in least.items() if count <= room.get(kind, 0)]
    if not fitting:
        return None
    kind = min(fitting, key=lambda kind: seconds_left(state, job, kind, least[kind]))
    return Want(kind, least[kind], why)


def push(steps: list[Step], state: State, job: JobState, has: Want, room: Mapping[str, int]) -> None:
    """A job's best step from what it has, where there is room for one that saves any time."""
    before, most = seconds_left(state, job, has.kind, has.gpus), has.gpus + room[has.kind]
    larger = [count for count in job.job.seconds[has.kind] if has.gpus < count <= most]
    loses = {n: (seconds_left(state, job, has.kind, n) - before) / (n - has.gpus) for n in larger}
    best = min(loses, key=lambda count: loses[count], default=0)
    if best and loses[best] < 0:
        heappush(steps, Step(loses[best], job.number, job, best))
