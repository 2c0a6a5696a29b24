"""Checks stored decisions, about jobs on a cluster or instances of a server: they are replayed, and the same policy
decides again today.
"""

from collections.abc import Iterator
from pathlib import Path

from planner import files
from planner.check.finding import Finding, Tolerances, classify_value
from planner.errors import PlannerError
from planner.policies import Schedule, replayed, schedule_jobs
from planner.serving import decided_again, is_repriced
from planner.simulate import run_jobs
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.actions_file import ActionsFile
from planner.specs.cluster_jobs.jobs import Fleet
from planner.specs.serving_actions import ServingActionsFile

ACTIONS = "actions.yaml"
JUDGED = {ActionsFile: ("makespan_s", "mean_completion_s"), ServingActionsFile: ("mean_first_s", "mean_done_s")}
Stored = ActionsFile | ServingActionsFile


def read_actions(path: Path) -> Stored:
    """A file of decisions, in either form. Raises InputError."""
    return files.read(path, ServingActionsFile) if "requests" in files.top_keys(path) else files.read(path, ActionsFile)


def decided_today(stored: Stored, folder: Path) -> Stored:
    """What the policy of a file, whose weights lie beside it, does today. Raises InputError and Infeasible."""
    if isinstance(stored, ServingActionsFile):
        return decided_again(stored, folder, replay=False)
    weights = str(folder / Path(stored.policy.weights).name) if stored.policy.weights else ""
    return schedule_jobs(stored.jobs, Fleet(stored.cluster), with_fields(stored.policy, weights=weights)).file()


def replay(stored: Stored, path: Path) -> Stored:
    """What comes of the decisions of a file. Raises InputError where one cannot happen, and Infeasible."""
    if isinstance(stored, ServingActionsFile):
        return decided_again(stored, path.parent, replay=True)
    fleet = Fleet(stored.cluster)
    history = run_jobs(stored.jobs, fleet, replayed(stored.decisions, str(path)), stored.policy.restart_s)
    return with_fields(stored, outcome=Schedule(stored.jobs, fleet, stored.policy, history).outcome)


def actions_findings(path: Path, tolerances: Tolerances) -> Iterator[Finding]:
    """What is wrong with stored decisions, or is another today."""
    try:
        stored = read_actions(path)
        if isinstance(stored, ServingActionsFile) and is_repriced(stored, path.parent):
            yield from repriced_findings(stored, path.parent)
            return
        again = replay(stored, path)
    except PlannerError as error:
        yield Finding("illegal", error.where or str(path), None, None, f"its decisions cannot happen: {error.message}")
        return
    if again.outcome != stored.outcome or again.decisions != stored.decisions:
        fields = ((name, getattr(stored.outcome, name), getattr(again.outcome, name)) for name in fields_of(stored))
        name, old, new = next((field for field in fields if field[1] != field[2]), ("decisions", None, None))
        yield Finding("illegal", f"outcome.{name}", old, new, "its decisions do not give the outcome that it states")
        return
    today = decided_today(stored, path.parent)
    found = [(name, getattr(stored.outcome, name), getattr(today.outcome, name)) for name in JUDGED[type(stored)]]
    for name, old, new in found:
        category = classify_value(old, new, tolerances.value)
        if category:
            yield Finding(category, f"outcome.{name}", old, new, f"{name}: {new / old - 1:+.2%}")
    if today.decisions != stored.decisions:
        yield Finding("drift", "decisions", None, None, "the same policy decides otherwise today")


def repriced_findings(stored: ServingActionsFile, folder: Path) -> Iterator[Finding]:
    """What comes of the policy at today's prices: neither outcome is better than the other. Raises PlannerError."""
    today = decided_again(stored, folder, replay=False)
    yield Finding("drift", "prices", stored.prices, today.prices, "the model's prices on its device are others today")
    for name in fields_of(stored):
        old, new = getattr(stored.outcome, name), getattr(today.outcome, name)
        if old != new:
            yield Finding("drift", f"outcome.{name}", old, new, f"{name} at today's prices")


def fields_of(stored: Stored) -> tuple[str, ...]:
    """Names of what came of decisions."""
    return stored.outcome.__struct_fields__
