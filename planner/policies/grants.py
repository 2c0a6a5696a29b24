"""GPUs granted one step at a time, and what is known of each step (after DL2, arXiv 1909.06040, section 4.2).

At an event nobody has any GPUs yet. A grant gives one job its next count on one kind: the least that is known for it
there, or the next larger one, or the least on another kind, and always one with which the job ends sooner than with
what it has. Grants go on until none fits, or whoever decides grants none. A candidate has a line of numbers,
`FEATURES`, which say nothing of names: of jobs, of kinds, or of GPUs.
"""

from collections.abc import Sequence
from math import log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.policies.orders import seconds_left
from planner.policies.want import Want, Wants
from planner.simulate import JobState, State

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

FEATURES = (
    "nothing",  # 1: the candidate to grant none; all that is of a job is then 0
    "first",  # 1: the job has no GPUs yet
    "seconds_before",  # log: to its end with what it has; of a first count: as after
    "seconds_after",  # log: to its end with the grant
    "saved_a_gpu",  # log: seconds that the grant saves per GPU that it adds; 0 of a first count
    "best_saved_a_gpu",  # log: the same for the count of that kind where it is most
    "less_than_most_saved",  # of `best_saved_a_gpu`: how far below the best candidate
    "longer_than_shortest",  # of `seconds_after`: how far above the shortest candidate, of first counts or of others
    "gpus_of_room",  # GPUs taken over those left of the kind
    "gpus_of_all",  # GPUs taken over all of the cluster
    "gpus_asked",  # GPUs that it then has over those it asks for
    "is_had",  # 1: it runs so already, and pays no restart
    "room_of_kind",  # GPUs left of the kind over all of the kind
    "runs",  # 1: it runs
    "age",  # log: seconds since it was submitted
    "attained",  # log: GPU-seconds that it has had
    "left",  # part of its work
    "room",  # GPUs left over all of the cluster
    "jobs",  # log: jobs that are there
    "jobs_without",  # part of the jobs that have no GPUs yet
)
OF_JOB, OF_ALL = slice(13, 17), slice(17, 20)
NOTHING = -1  # index of a job: the candidate to grant none
NO_JOB = np.array([NOTHING])


class Grants(NamedTuple):
    """Candidates: whose, of which kind, and what is known of each."""

    jobs: Integers  # (candidates,); the last is `NOTHING` where granting none is allowed
    kinds: Integers  # (candidates,)
    counts: Integers  # (candidates,) GPUs that the job then has
    features: Floats  # (candidates, len(FEATURES))


class Allocation:
    """Who has been granted what so far. Jobs are numbered as they came, kinds as the fleet has them."""

    def __init__(self, state: State, idle: bool = True) -> None:
        self.idle = idle  # whether granting none is allowed while something fits
        self.jobs: Sequence[JobState] = sorted(
            [*state.running.values(), *state.waiting.values()], key=lambda job: job.number
        )
        self.sizes = np.array([*state.fleet.counts.values()])  # (kinds,)
        self.kinds = [*state.fleet.counts]
        room = state.room_of_all()
        self.room = np.array([room[kind] for kind in self.kinds])  # (kinds,) GPUs left
        known = [{*()}.union(*(job.job.seconds.get(kind, ()) for job in self.jobs)) for kind in self.kinds]
        self.counts = np.full((len(self.kinds), max(map(len, known))), self.sizes.max() + 1)  # (kinds, cells): rising
        for kind, counts in enumerate(known):
            self.counts[kind, : len(counts)] = sorted(counts)
        self.seconds = np.full((len(self.jobs), *self.counts.shape), np.inf)  # to the end; inf: not known
        for number, job in enumerate(self.jobs):
            for kind, name in enumerate(self.kinds):
                of_job = job.job.seconds.get(name, {})
                for cell, count in enumerate(self.counts[kind].tolist()):
                    if count in of_job:
                        self.seconds[number, kind, cell] = seconds_left(state, job, name, count)
        self.has = np.zeros((len(self.jobs), len(self.kinds)), dtype=np.intp)  # GPUs granted
        self.granted = np.zeros(len(self.jobs), dtype=np.bool_)
        self.ends = np.full(len(self.jobs), np.inf)  # seconds to the end with what was granted
        self.runs_on = np.array(
            [(self.kinds.index(job.kind) if job.gpus else NOTHING, len(job.gpus)) for job in self.jobs]
        )
        self.of_jobs = np.array([features_of_job(state, job) for job in self.jobs])
        self.asked = np.array([job.job.gpus for job in self.jobs])

    def grants(self) -> Grants:
        """All candidates: the least count of each kind with which a job ends sooner, where it fits."""
        had = self.has[:, :, None]
        sooner = (self.seconds < self.ends[:, None, None]) & (self.counts > had)
        fits = sooner & (self.counts - had <= self.room[:, None])
        nearest = sooner.argmax(axis=2)  # (jobs, kinds)
        able = np.take_along_axis(fits, nearest[:, :, None], axis=2)[:, :, 0]
        jobs, kinds = np.nonzero(able)
        cells = nearest[jobs, kinds]
        counts, features = self.counts[kinds, cells], np.zeros((len(jobs) + 1, len(FEATURES)))
        if len(jobs):
            self.describe(features[:-1], Grants(jobs, kinds, counts, features), cells, fits[jobs, kinds])
        features[:, OF_ALL] = self.features_of_all()
        features[-1, 0] = 1.0
        if not self.idle or not self.granted.any():
            return Grants(jobs, kinds, counts, features[:-1])
        jobs, kinds, counts = (np.concatenate([each, NO_JOB]) for each in (jobs, kinds, counts))
        return Grants(jobs, kinds, counts, features)

    def give(self, job: int, kind: int, count: int) -> None:
        """Grant a job so many GPUs of a kind, in place of what it had."""
        self.room += self.has[job]
        self.room[kind] -= count
        self.has[job] = 0
        self.has[job, kind] = count
        self.granted[job] = True
        self.ends[job] = self.seconds[job, kind, np.searchsorted(self.counts[kind], count)]

    def wants(self, reason: str) -> Wants:
        """What was granted."""
        found = zip(self.jobs, self.has.argmax(axis=1).tolist(), self.has.max(axis=1).tolist(), strict=True)
        return {job.job.id: Want(self.kinds[kind], count, reason) for job, kind, count in found if count}

    def describe(self, features: Floats, grants: Grants, cells: Integers, fits: NDArray[np.bool_]) -> None:
        """Write what is known of candidates; `fits`, (candidates, cells): what they could grow to on that kind."""
        jobs, kinds, counts, _ = grants
        first = ~self.granted[jobs]
        after = self.seconds[jobs, kinds, cells]
        before = np.where(first, after, self.ends[jobs])
        had = np.where(first, 0, self.has[jobs].max(axis=1))[:, None]
        saved = np.where(fits, before[:, None] - self.seconds[jobs, kinds], 0.0)
        saved_a_gpu = saved / np.maximum(1, self.counts[kinds] - had)
        best = np.where(first, 0.0, np.log1p(saved_a_gpu.max(axis=1)))
        log_after = np.log1p(after)
        features[:, 1] = first
        features[:, 2] = np.log1p(before)
        features[:, 3] = log_after
        features[:, 4] = np.where(first, 0.0, np.log1p(saved_a_gpu[np.arange(len(jobs)), cells]))
        features[:, 5] = best
        features[:, 6] = best.max() - best
        least = [log_after[of].min() if of.any() else 0.0 for of in (~first, first)]
        features[:, 7] = log_after - np.where(first, least[1], least[0])
        taken = counts - self.has[jobs, kinds]
        features[:, 8] = taken / self.room[kinds]
        features[:, 9] = taken / self.sizes.sum()
        features[:, 10] = counts / self.asked[jobs]
        features[:, 11] = (self.runs_on[jobs, 0] == kinds) & (self.runs_on[jobs, 1] == counts)
        features[:, 12] = self.room[kinds] / self.sizes[kinds]
        features[:, OF_JOB] = self.of_jobs[jobs]

    def features_of_all(self) -> tuple[float, float, float]:
        """Room over all GPUs, how many jobs, and the part of them that has no GPUs."""
        jobs, granted = len(self.jobs), np.count_nonzero(self.granted)
        return float(self.room.sum() / self.sizes.sum()), log1p(jobs), 1 - granted / jobs


def features_of_job(state: State, job: JobState) -> tuple[float, ...]:
    """What grants do not change: whether it runs, its age, its service, and what is left of it."""
    return (
        float(bool(job.gpus)),
        log1p(max(0.0, state.now - job.job.submit_s)),
        log1p(job.attained_at(state.now)),
        job.left_at(state.now),
    )


def towards(grants: Grants, allocation: Allocation, job: str, want: Want) -> int | None:
    """The candidate that brings a job nearer to what somebody wants for it; None: there is none, or it has that."""
    kind = allocation.kinds.index(want.kind)
    for number in np.flatnonzero((grants.kinds == kind) & (grants.jobs != NOTHING)).tolist():
        if allocation.jobs[grants.jobs[number]].job.id == job:
            return number if grants.counts[number] <= want.gpus else None
    return None
