"""Cells: kind and number of GPUs of every job, and with them its layout, decided together (Crius, arXiv 2403.16125).

Every job has a first cell, in the order, as far as there is room: the least count that is known for it, on the kind
where it then ends first. After that GPUs go where they are worth most (Optimus, EuroSys 2018, section 4.1): a step is
to a larger count, or to any of another kind; the one that saves most seconds to a job's end per GPU that it takes more
is taken, until none fits that saves any. What it leaves is there for others. Who would have another cell than it has
pays its restart in these seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from planner.policies.orders import Order, seconds_left
from planner.policies.want import Want, Wants
from planner.simulate import Event, JobState, State


class Step(NamedTuple):
    """A job's next step, in the order in which steps are taken."""

    loses: float  # seconds to its end per GPU: less than none
    number: int  # first come, first served, where these are equal
    job: JobState
    has: Want  # before it
    kind: str
    gpus: int

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self[:2] < other[:2]


@dataclass(frozen=True, slots=True)
class CellPolicy:
    """Decides about all jobs anew; the order says who has a first cell before others."""

    order: Order

    def wants(self, state: State, event: Event | None = None) -> Wants:
        """Kinds and counts of all jobs that get any."""
        return dict(self.taken(state))

    def taken(self, state: State) -> Iterator[tuple[str, Want]]:
        """First cells and steps, one after the other: whose, and what it has from then on."""
        room, wants, jobs = state.room_of_all(), dict[str, Want](), list[JobState]()
        for job in self.order.queue(state, preempt=True):
            first = first_cell(state, job, room, self.order.why)
            if first:
                wants[job.job.id] = first
                yield job.job.id, first
                room[first.kind] -= first.gpus
                jobs.append(job)
        steps = [*best_steps(state, jobs, wants, room)]
        heapify(steps)
        while steps:
            step = heappop(steps)
            has, again = wants[step.job.job.id], [step.job]
            if has != step.has:
                continue
            if step.gpus - (has.gpus if has.kind == step.kind else 0) <= room[step.kind]:
                room[has.kind] += has.gpus
                room[step.kind] -= step.gpus
                why = f"saves {-step.loses:,.0f} s a GPU, more than for others"
                wants[step.job.job.id] = Want(step.kind, step.gpus, why)
                yield step.job.job.id, wants[step.job.job.id]
                again = again if has.kind == step.kind else jobs
            for following in best_steps(state, again, wants, room):
                heappush(steps, following)


def first_cell(state: State, job: JobState, room: Mapping[str, int], why: str) -> Want | None:
    """The least count on the kind where a job then ends first; None: there is no room."""
    least = {kind: min(by_count) for kind, by_count in sorted(job.job.seconds.items())}
    fitting = [kind for kind, count in least.items() if count <= room.get(kind, 0)]
    if not fitting:
        return None
    kind = min(fitting, key=lambda kind: seconds_left(state, job, kind, least[kind]))
    return Want(kind, least[kind], why)


def best_steps(state: State, jobs: Iterable[JobState], wants: Wants, room: Mapping[str, int]) -> Iterator[Step]:
    """Each job's best step from what it has, where there is room for one that saves any time."""
    for job in jobs:
        has = wants[job.job.id]
        before, best = seconds_left(state, job, has.kind, has.gpus), Step(0.0, job.number, job, has, "", 0)
        for kind, by_count in job.job.seconds.items():
            least, most = (has.gpus, has.gpus) if kind == has.kind else (0, 0)
            for count in by_count:
                if least < count <= room.get(kind, 0) + most:
                    loses = (seconds_left(state, job, kind, count) - before) / max(1, count - has.gpus)
                    best = min(best, Step(loses, job.number, job, has, kind, count))
        if best.gpus:
            yield best
