"""The workflow of `planner train-policy`: traces become a policy of one cluster, and what it is worth."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner import files
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.extras import require_torch
from planner.policies import TEACHERS
from planner.specs.cluster_jobs.read_jobs import read_fleet
from planner.workflows.scheduling import ClusterQuestion, trace_jobs

if TYPE_CHECKING:
    from planner.learning import Training


@dataclass(frozen=True, slots=True)
class LearningQuestion:
    """From whom to learn, on which cluster and traces, and how long."""

    cluster: ClusterQuestion
    traces: tuple[Path, ...]
    teacher: str = "marginal_gain"
    restart_s: float = 0.0
    rounds: int = 30
    seed: int = 0


def learn_policy(
    asked: LearningQuestion, output: Path, resume: bool = False, on_progress: OnProgress = silent
) -> "Training":
    """Learn a policy from traces, and write it. Raises InputError and Infeasible."""
    require_torch("train-policy")
    if asked.teacher not in TEACHERS:
        fix = files.nearest_word(asked.teacher, [*TEACHERS]) or f"one of {', '.join(TEACHERS)}"
        raise InputError(f"no teacher is called `{asked.teacher}`", where="--teacher", fix=fix)
    files.require_parent(output)
    from planner.learning import TrainingPlan, train_policy

    fleet = read_fleet(asked.cluster.cluster, asked.cluster.gpus)
    questions = [replace(asked.cluster, trace=trace, elastic=True) for trace in asked.traces]
    traces = tuple(tuple(trace_jobs(question, fleet)[0]) for question in questions)
    teacher = TEACHERS[asked.teacher]
    plan = TrainingPlan(traces, fleet, teacher, asked.teacher, asked.restart_s, asked.rounds, asked.seed)
    kept = output.with_name(f"{output.name}.training")
    if not resume:
        kept.unlink(missing_ok=True)
    training = train_policy(plan, kept, on_progress)
    files.write_bytes(output, training.weights.data())
    kept.unlink(missing_ok=True)
    return training
