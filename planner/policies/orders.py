"""Orders of jobs: who comes first, and what a job gains by a kind of GPU."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from planner.simulate import JobState, State

Key = Callable[[State, JobState], float]
Gain = Callable[[State, JobState, str], float]
SECOND = 1.0


def gpu_seconds_left(state: State, job: JobState) -> float:
    """GPU-seconds that a job still takes on the kind that is quickest for it."""
    return job.left_at(state.now) * job.job.best_seconds * job.job.gpus


def attained_service(state: State, job: JobState) -> float:
    """GPU-seconds that it has had (Tiresias, NSDI 2019: two-dimensional)."""
    return job.attained_at(state.now)


def seconds_left(state: State, job: JobState, kind: str, count: int) -> float:
    """Seconds to its end on so many GPUs of a kind, a restart included where it would be one."""
    seconds = job.job.seconds[kind][count]
    if job.started is None:
        return seconds
    moved = (job.kind, len(job.gpus)) != (kind, count)
    ahead = state.restart_s if moved else max(0.0, job.ready - state.now)
    return ahead + job.left_at(state.now) * seconds


def least_left(state: State, job: JobState) -> float:
    """Seconds to its end on the least count that is known for it, on the kind where that is soonest."""
    return min(seconds_left(state, job, kind, min(by_count)) for kind, by_count in job.job.seconds.items())


def ends_a_second(state: State, job: JobState, kind: str) -> float:
    """Jobs that end per second while this one runs there: the more, the sooner it ends."""
    return 1 / max(seconds_left(state, job, kind, job.job.gpus), SECOND)


def neglect(state: State, job: JobState, kind: str) -> float:
    """How much of its best speed it gets there, over the service that it has had."""
    seconds = job.job.seconds[kind][job.job.gpus]
    return job.job.best_seconds / seconds / (job.attained_at(state.now) + job.job.gpus * SECOND)


@dataclass(frozen=True, slots=True)
class Order:
    """Who comes first: the least key, then who came first. `gain`: what kinds are chosen by jointly."""

    why: str  # the reason of who is first
    key: Key | None  # None: in order of arrival
    gain: Gain | None = None

    def queue(self, state: State, preempt: bool) -> Collection[JobState]:
        """Waiting jobs in this order; with `preempt`: running ones among them."""
        if self.key is None and not preempt:
            return state.waiting.values()
        jobs = [*(state.running.values() if preempt else ()), *state.waiting.values()]
        keys = {job.number: self.key(state, job) if self.key else 0.0 for job in jobs}
        return sorted(jobs, key=lambda job: (keys[job.number], job.number))


ORDERS: Mapping[str, Order] = {
    "fifo": Order("came first", None),
    "srtf": Order("least GPU time left", gpu_seconds_left, ends_a_second),
    "las": Order("least service attained", attained_service, neglect),
}
