"""Checks stored decisions about jobs on a cluster: they are replayed, and the same policy decides again today."""

from collections.abc import Iterator
from pathlib import Path

from planner import files
from planner.check.finding import Finding, Tolerances, classify_value
from planner.errors import PlannerError
from planner.policies import Schedule, replayed, schedule_jobs
from planner.simulate import run_jobs
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.actions_file import ActionsFile
from planner.specs.cluster_jobs.jobs import Fleet

ACTIONS = "actions.yaml"
JUDGED = ("makespan_s", "mean_completion_s")


def decided_today(stored: ActionsFile, folder: Path) -> Schedule:
    """What the policy of a file, whose weights lie beside it, does today. Raises InputError and Infeasible."""
    weights = str(folder / Path(stored.policy.weights).name) if stored.policy.weights else ""
    return schedule_jobs(stored.jobs, Fleet(stored.cluster), with_fields(stored.policy, weights=weights))


def replay(stored: ActionsFile, name: str) -> Schedule:
    """What comes of the decisions of a file. Raises InputError where one cannot happen, and Infeasible."""
    fleet = Fleet(stored.cluster)
    history = run_jobs(stored.jobs, fleet, replayed(stored.decisions, name), stored.policy.restart_s)
    return Schedule(stored.jobs, fleet, stored.policy, history)


def actions_findings(path: Path, tolerances: Tolerances) -> Iterator[Finding]:
    """What is wrong with stored decisions, or is another today."""
    try:
        stored = files.read(path, ActionsFile)
        outcome = replay(stored, str(path)).outcome
    except PlannerError as error:
        yield Finding("illegal", error.where or str(path), None, None, f"its decisions cannot happen: {error.message}")
        return
    if outcome != stored.outcome:
        fields = ((name, getattr(stored.outcome, name), getattr(outcome, name)) for name in outcome.__struct_fields__)
        name, old, new = next(field for field in fields if field[1] != field[2])
        yield Finding("illegal", f"outcome.{name}", old, new, "its decisions do not give the outcome that it states")
        return
    today = decided_today(stored, path.parent).file()
    found = [(name, getattr(stored.outcome, name), getattr(today.outcome, name)) for name in JUDGED]
    for name, old, new in found:
        category = classify_value(old, new, tolerances.value)
        if category:
            yield Finding(category, f"outcome.{name}", old, new, f"{name}: {new / old - 1:+.2%}")
    if today.decisions != stored.decisions:
        yield Finding("drift", "decisions", None, None, "the same policy decides otherwise today")
