"""Shares of time by linear programs (Gavel, OSDI 2020), and dominant resource fairness (NSDI 2011).

x(j, k) is the share of time that job j runs on kind k, with as many GPUs g(j) as it asks for; s(j, k) are the seconds
that all of its work takes there, l(j) is what is left of it, and N(k) the GPUs of kind k.

    in both      sum_k x(j, k) <= 1                      (one place at a time)     `base_program`
                 sum_j g(j) x(j, k) <= N(k)              (no GPU twice)            `base_program`
    max_min      maximise t:  g(j) r(j) >= t             r(j) = sum_k x(j, k) / s(j, k) over that of equal shares
    makespan     minimise T:  T sum_k x(j, k) / s(j, k) >= l(j)

The makespan is linear in the times y = x T, and no schedule of jobs with these counts ends sooner than T.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from planner.policies.want import Want, Wants
from planner.programs import ProgramBuilder, solve
from planner.simulate import JobState, State

Shares = Mapping[tuple[str, str], float]  # job and kind → share of time
LEAST = 1e-9  # a share, or seconds, of less are what rounding leaves
SLACK = 1e-7  # of what was sought, as it is asked for again: wider than a solver's tolerances


class ShareProgram(NamedTuple):
    """A program under construction: a variable for each pair of job and kind, and one more, which is sought."""

    builder: ProgramBuilder
    variables: Mapping[tuple[str, str], int]
    sought: int

    def solved(self, cost: Mapping[int, float] | None = None) -> tuple[float, Shares]:
        """What was sought, and what is more than nothing of all pairs; `cost`: another objective."""
        program = self.builder.build()
        if cost is not None:
            program = replace(program, cost=np.array([cost.get(v, 0.0) for v in range(program.variables)]))
        values = solve(program).values
        if values is None:
            raise ArithmeticError("no shares were found, and all jobs waiting is a solution")
        return float(values[self.sought]), {p: float(values[v]) for p, v in self.variables.items() if values[v] > LEAST}


def base_program(state: State, jobs: Sequence[JobState], parts: bool) -> ShareProgram:
    """The constraints of both programs. `parts`: of times, which are parts of what is sought, and not of 1."""
    builder = ProgramBuilder()
    variables = {(job.job.id, kind): builder.variable() for job in jobs for kind in job.kinds}
    sought = builder.variable(cost=1.0 if parts else -1.0)

    def at_most(terms: dict[int, float], count: float) -> None:
        builder.row({**terms, sought: -count} if parts else terms, upper=0.0 if parts else count)

    for job in jobs:
        at_most({variables[job.job.id, kind]: 1.0 for kind in job.kinds}, 1.0)
    gpus = {job.job.id: float(job.job.gpus) for job in jobs}
    for kind, size in state.fleet.counts.items():
        at_most({v: gpus[job] for (job, its_kind), v in variables.items() if its_kind == kind}, float(size))
    return ShareProgram(builder, variables, sought)


def speeds(state: State, job: JobState) -> dict[str, float]:
    """Of its work a second, by kind."""
    return {kind: 1 / job.job.seconds[kind][job.job.gpus] for kind in job.kinds}


def least_makespan(state: State) -> tuple[float, Shares]:
    """Seconds within which all jobs could end, and no schedule ends them sooner; and the shares that do."""
    jobs = [*state.running.values(), *state.waiting.values()]
    base = base_program(state, jobs, parts=True)
    unit = max((job.job.best_seconds for job in jobs), default=1.0)  # of times: what matters is within tolerances
    for job in jobs:
        rates, best = speeds(state, job), job.job.best_seconds
        terms = {base.variables[job.job.id, kind]: rate * best for kind, rate in rates.items()}
        base.builder.row(terms, lower=job.left_at(state.now) * best / unit)
    units, times = base.solved()
    return units * unit, {pair: spent / units for pair, spent in times.items()}


def makespan_shares(state: State) -> Shares:
    return least_makespan(state)[1]


def max_min_shares(state: State) -> Shares:
    """Shares with which the job that fares worst, compared with equal shares of every kind, fares best; among those,
    the ones with most speed in all.
    """
    jobs = [*state.running.values(), *state.waiting.values()]
    if not jobs:
        return {}  # the worst of none fares without bound
    base, counts = base_program(state, jobs, parts=False), state.fleet.counts
    cost: dict[int, float] = {}
    for job in jobs:
        rates = speeds(state, job)
        equal = sum(rate * counts[kind] for kind, rate in rates.items()) / state.fleet.size
        terms = {base.variables[job.job.id, kind]: job.job.gpus * rate / equal for kind, rate in rates.items()}
        cost |= {base.variables[job.job.id, kind]: -rate / max(rates.values()) for kind, rate in rates.items()}
        base.builder.row({**terms, base.sought: -1.0}, lower=0.0)
    least, _ = base.solved()
    base.builder.row({base.sought: 1.0}, lower=least * (1 - SLACK))
    return base.solved(cost)[1]


def dominant_shares(state: State) -> Wants:
    """Jobs one after the other, each of the user whose largest share of any kind is least; of a user as they came, on
    the kind that is quickest for the job.
    """
    room, counts = state.room_of_all(), state.fleet.counts
    used: dict[tuple[str, str], int] = {}
    queues: dict[str, list[JobState]] = {}
    for job in sorted([*state.running.values(), *state.waiting.values()], key=lambda job: job.job.submit_s):
        queues.setdefault(job.job.user or job.job.id, []).append(job)
    heap = [(0.0, queue[0].job.submit_s, user) for user, queue in queues.items()]
    heapify(heap)
    wants: dict[str, Want] = {}
    while heap:
        share, _, user = heappop(heap)
        job, count = queues[user].pop(0), 0
        fitting = [kind for kind in job.kinds if room[kind] >= job.job.gpus]
        if fitting:
            kind, count = min(fitting, key=lambda kind: job.job.seconds[kind][job.job.gpus]), job.job.gpus
            wants[job.job.id] = Want(kind, count, f"{user} has the least dominant share, {share:.1%}")
            room[kind] -= count
            used[user, kind] = used.get((user, kind), 0) + count
            share = max(share, used[user, kind] / counts[kind])
        if queues[user]:
            heappush(heap, (share, queues[user][0].job.submit_s, user))
    return wants
