"""Jobs run to their ends by a policy, what came of it, and both as a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from planner.errors import InputError
from planner.policies.choice import SHARES, policy
from planner.policies.learned import LearnedPolicy
from planner.simulate import Event, History, run_jobs
from planner.specs.base import Indices, with_fields
from planner.specs.cluster_jobs.actions_file import (
    ActionsFile,
    PolicyChoice,
    RecordedAction,
    RecordedDecision,
    ScheduleOutcome,
)
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet

MOST_ROUNDS = 10**5  # of one job: more would take hours


@dataclass(frozen=True, slots=True)
class Schedule:
    """Jobs, GPUs, who decided, and what happened."""

    jobs: tuple[ClusterJob, ...]
    fleet: Fleet
    choice: PolicyChoice
    history: History
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> ScheduleOutcome:
        """Times from the first submission; completion: from a job's own submission to its end."""
        completions = sorted(self.history.ends[job.id] - job.submit_s for job in self.jobs)
        makespan = max(self.history.ends.values())
        shares = ((0.5 if each.beside else 1.0, each) for each in self.history.segments)
        busy = sum(share * len(each.gpus) * (each.until - each.since) for share, each in shares)
        return ScheduleOutcome(
            makespan_s=makespan,
            mean_completion_s=sum(completions) / len(completions),
            p50_completion_s=quantile(completions, 0.50),
            p99_completion_s=quantile(completions, 0.99),
            utilisation=min(1.0, busy / (self.fleet.size * makespan)) if makespan else 0.0,
            moves=self.history.moves,
        )

    def file(self) -> ActionsFile:
        """All of it, to be replayed and decided again."""
        decisions = [
            RecordedDecision(
                event=number,
                at_s=event.at,
                after=happened(event),
                actions=tuple(
                    RecordedAction(do=a.do, job=a.job, gpus=Indices(sorted(a.gpus)), until_s=a.until, reason=a.reason)
                    for a in actions
                ),
            )
            for number, (event, actions) in enumerate(self.history.decisions)
            if actions
        ]
        return ActionsFile(
            format=ActionsFile.FORMAT,
            cluster=self.fleet.ranks,
            policy=with_fields(self.choice, weights=Path(self.choice.weights).name),
            jobs=self.jobs,
            outcome=self.outcome,
            decisions=tuple(decisions),
        )


def schedule_jobs(jobs: Sequence[ClusterJob], fleet: Fleet, choice: PolicyChoice) -> Schedule:
    """Jobs run to their ends as was chosen. Raises InputError and Infeasible."""
    longest = max(jobs, key=lambda job: job.best_seconds)
    if (choice.rounds or choice.order in SHARES) and longest.best_seconds > MOST_ROUNDS * choice.round_seconds:
        message = f"job `{longest.id}` takes {longest.best_seconds:.4g} s, over {MOST_ROUNDS:,} rounds"
        raise InputError(message, where="--rounds", fix="longer rounds, or a policy without them")
    decide = policy(choice, fleet)
    history = run_jobs(jobs, fleet, decide, choice.restart_s)
    if isinstance(decide, LearnedPolicy):
        return Schedule((*jobs,), fleet, with_fields(choice, weights_sha256=decide.sha256), history, (decide.note,))
    return Schedule((*jobs,), fleet, choice, history)


def happened(event: Event) -> tuple[str, ...]:
    """What a decision came after: `arrival of 17`."""
    return tuple(f"{what} of {job}" if job else what for what, job in event.happened)


def quantile(rising: Sequence[float], share: float) -> float:
    """The least value that so large a share of all does not exceed."""
    return rising[max(0, ceil(share * len(rising)) - 1)]
