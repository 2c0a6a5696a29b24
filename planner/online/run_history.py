"""The steps that a run trained: those of its head plan, then those that were taken from the folder."""

from collections.abc import Iterator
from pathlib import Path

from planner.files import TAKEN
from planner.plan.plan_file import Plan
from planner.plan.step_files import PlanHead


def trained_steps(plan: Plan, folder: Path | None, count: int, first: int = 0) -> Iterator[tuple[Plan, int]]:
    """For each of `count` steps from number `first`, its plan, and the index of the step in that plan."""
    head = PlanHead(plan)
    for number in range(first, first + count):
        if folder is None or number < len(plan.steps):
            yield plan, number % len(plan.steps)
        else:
            yield head.read_plan(folder / TAKEN / str(number)), 0
