"""Jobs to learn from: windows of traces, squeezed to different loads, run by the clock that `planner schedule` uses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from planner.policies import Wants, decided_anew
from planner.simulate import History, State, run_jobs
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet

LOADS = (0.5, 2.0)  # GPU-seconds that jobs ask for over those there are, from the first to the last submission
HELD_OUT = 0.2  # of each trace, its end: nothing is learned from it
WINDOW = 30  # jobs


@dataclass(frozen=True, slots=True)
class Episode:
    """Jobs that run on a fleet until all have ended."""

    jobs: tuple[ClusterJob, ...]
    fleet: Fleet
    restart_s: float

    def run(self, wants_of: Callable[[State], Wants]) -> History:
        """Run them, decided about anew at each arrival and end."""
        return run_jobs(
            self.jobs,
            self.fleet,
            lambda state, event: decided_anew(state, wants_of(state)) if event.changes else (),
            self.restart_s,
        )

    def mean_completion(self, history: History) -> float:
        """Seconds from submission to end."""
        return sum(history.ends[job.id] - job.submit_s for job in self.jobs) / len(self.jobs)

    @property
    def mean_seconds(self) -> float:
        """Of a job alone, as it asks."""
        return sum(job.best_seconds for job in self.jobs) / len(self.jobs)


def drawn_episode(
    traces: Sequence[Sequence[ClusterJob]], fleet: Fleet, restart_s: float, draw: np.random.Generator
) -> Episode:
    """Consecutive jobs of one of the traces, from a random one on, at a random load."""
    trace = traces[int(draw.integers(len(traces)))]
    first = int(draw.integers(max(1, len(trace) - WINDOW + 1)))
    jobs = trace[first : first + WINDOW]
    start, length = jobs[0].submit_s, jobs[-1].submit_s - jobs[0].submit_s
    load = exp(draw.uniform(log(LOADS[0]), log(LOADS[1])))
    wanted = sum(job.best_seconds * job.gpus for job in jobs) / (load * fleet.size)
    scale = wanted / length if length else 0.0
    spread = [with_fields(job, submit_s=(job.submit_s - start) * scale) for job in jobs]
    return Episode(tuple(spread), fleet, restart_s)


def divided(traces: Sequence[Sequence[ClusterJob]]) -> tuple[list[Sequence[ClusterJob]], list[Sequence[ClusterJob]]]:
    """Traces without their ends, and the ends."""
    cuts = [max(1, round(len(trace) * (1 - HELD_OUT))) for trace in traces]
    return (
        [trace[:cut] for trace, cut in zip(traces, cuts, strict=True)],
        [trace[cut:] or trace for trace, cut in zip(traces, cuts, strict=True)],
    )
