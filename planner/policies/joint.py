"""Kinds chosen jointly: the most gain over all jobs, as an integer program.

    maximise  sum gain(j, k) x(j, k)
    such that x(j, .) <= 1 for each job,   sum gpus(j) x(j, k) <= GPUs of kind k

The gain is the order's. With jobs that end per second (`srtf`) and one kind it starts the shortest; with several it
weighs who loses least by a slower one, which one job after the other cannot see.
"""

from dataclasses import dataclass
from itertools import islice

from planner.policies.orders import Order
from planner.policies.want import Want, Wants
from planner.programs import Program, ProgramBuilder, solve
from planner.simulate import Event, JobState, State

MOST = 500


@dataclass(frozen=True, slots=True)
class JointPolicy:
    """An order whose gain decides who runs on what; looks at the first `MOST` jobs in that order."""

    order: Order
    preempt: bool = False

    def wants(self, state: State, event: Event | None = None) -> Wants:
        """Jobs that start now; with `preempt`: those that run from now on."""
        room = state.room_of_all() if self.preempt else state.free_counts()
        chosen = [*islice(self.order.queue(state, self.preempt), MOST)]
        pairs = [(job, kind) for job in chosen for kind in job.kinds if room[kind]]
        if not pairs:
            return {}
        taken = solve(self.program(state, pairs, room)).values
        return {
            job.job.id: Want(kind, job.job.gpus, f"{self.order.why}, kinds chosen jointly")
            for (job, kind), value in zip(pairs, taken if taken is not None else (), strict=True)
            if value > 0.5
        }

    def program(self, state: State, pairs: list[tuple[JobState, str]], room: dict[str, int]) -> Program:
        """The program of this page, a variable for each pair of job and kind."""
        builder = ProgramBuilder()
        gains = [self.order.gain(state, job, kind) if self.order.gain else 0.0 for job, kind in pairs]
        scale = 1 / max(gains)
        taken = [builder.variable(0, 1, integer=True, cost=-gain * scale) for gain in gains]
        by_job: dict[str, list[int]] = {}
        for variable, (job, _) in zip(taken, pairs, strict=True):
            by_job.setdefault(job.job.id, []).append(variable)
        for variables in by_job.values():
            builder.row(dict.fromkeys(variables, 1.0), upper=1.0)
        for kind, free in room.items():
            on_it = {v: float(job.job.gpus) for v, (job, k) in zip(taken, pairs, strict=True) if k == kind}
            builder.row(on_it, upper=float(free))
        return builder.build()
