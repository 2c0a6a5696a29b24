"""Reads plan files, and refuses those that cannot be executed or compared."""

from pathlib import Path

from planner import files
from planner.costs import find_objective
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.specs.library import is_file


def read_plan(path: str | Path) -> Plan:
    """The plan of a file, legal and with an objective that there is. Raises InputError."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    find_objective(plan.outcome.objective, f"{path} (outcome.objective)")
    return plan


def plan_at(reference: str) -> Plan | None:
    """The plan that a path leads to; None where it leads to a job, or is a job's name. Raises InputError."""
    path = Path(reference)
    return read_plan(path) if is_file(path) and files.format_of(path) == Plan.FORMAT else None
