"""Elastic counts: the next GPUs go to the job that they shorten most (Optimus, EuroSys 2018, section 4.1).

Every job has the least count that is known for it before any has more, those that then end soonest first. After that a
step is from one known count of a kind to the next, and the one that saves most seconds per GPU is taken, until nothing
fits. Running jobs are resized where that is what comes out.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count as numbers
from typing import NamedTuple

from planner.policies.orders import seconds_left
from planner.policies.wants import Want, Wants
from planner.simulate import JobState, State


class Step(NamedTuple):
    """A job's next step, in the order in which steps are taken."""

    grows: bool
    seconds: float  # to its end, of a first step; else minus those that it saves per GPU
    number: int  # first come, first served, where these are equal
    job: str
    kind: str
    gpus: int


def marginal_gain(state: State) -> Wants:
    """Kinds and counts of all jobs that get any."""
    room, jobs = state.room_of_all(), {**state.running, **state.waiting}
    number = numbers()
    steps = [step for job in jobs.values() for step in first_steps(state, job, number)]
    heapify(steps)
    wants: dict[str, Want] = {}
    while steps:
        step = heappop(steps)
        has = wants.get(step.job)
        more = step.gpus - (has.gpus if has else 0)
        if more > room[step.kind] or (has and not step.grows):
            continue
        room[step.kind] -= more
        why = f"saves {-step.seconds:,.0f} s a GPU more than for others" if step.grows else "least count, ends soonest"
        wants[step.job] = Want(step.kind, step.gpus, why)
        for following in larger_step(state, jobs[step.job], wants[step.job], number):
            heappush(steps, following)
    return wants


def first_steps(state: State, job: JobState, number: Iterator[int]) -> Iterator[Step]:
    """To the least count on each kind that has as many GPUs."""
    for kind, by_count in sorted(job.job.seconds.items()):
        least = min(by_count)
        if least <= state.fleet.counts.get(kind, 0):
            yield Step(False, seconds_left(state, job, kind, least), next(number), job.job.id, kind, least)


def larger_step(state: State, job: JobState, has: Want, number: Iterator[int]) -> Iterator[Step]:
    """To the next count of its kind, where that is quicker."""
    larger = [each for each in job.job.seconds[has.kind] if each > has.gpus]
    if larger:
        next_count = min(larger)
        saved = seconds_left(state, job, has.kind, has.gpus) - seconds_left(state, job, has.kind, next_count)
        if saved > 0:
            per_gpu = saved / (next_count - has.gpus)
            yield Step(True, -per_gpu, next(number), job.job.id, has.kind, next_count)
