"""Reads plan files, and refuses those that cannot be executed or compared, or that state what is not so."""

from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.costs import find_objective
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.scoring.possible import answer_about
from planner.scoring.score import Score, score
from planner.scoring.statements import computed_by_hand, require_true
from planner.specs.library import is_file


class ScoredPlan(NamedTuple):
    """A plan as it was read, whose statements are true, and the score of each step."""

    plan: Plan
    scores: list[Score]


def read_scored(path: str | Path) -> ScoredPlan:
    """The plan of a file with its scores: legal, and what it states is what its own numbers give. Raises InputError."""
    plan = read_legal(path)
    with answer_about(str(path), lambda where: f"{path} ({where})"):
        scores = [score(plan, number) for number in range(len(plan.steps))]
    plan = computed_by_hand(plan, scores)
    require_true(plan, scores, str(path))
    return ScoredPlan(plan, scores)


def read_plan(path: str | Path) -> Plan:
    """The plan of a file as `read_scored` reads it; without prices there is nothing that it could state."""
    plan = read_legal(path)
    return read_scored(path).plan if plan.uses.prices.has_prices else plan


def read_legal(path: str | Path) -> Plan:
    """The plan of a file, legal and with an objective that there is. Raises InputError."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    find_objective(plan.outcome.objective, f"{path} (outcome.objective)")
    return plan


def scored_at(reference: str) -> ScoredPlan | None:
    """The plan that a path leads to, scored; None where it leads to a job, or is a job's name. Raises InputError."""
    path = Path(reference)
    return read_scored(path) if is_file(path) and files.format_of(path) == Plan.FORMAT else None
