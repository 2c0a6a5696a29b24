"""What a run trained, step by step: its head's own steps, then those that were taken from the folder."""

from collections.abc import Iterator
from pathlib import Path

from planner.files.slots import TAKEN
from planner.plan.model import Plan
from planner.plan.steps import Head


def trained(plan: Plan, folder: Path | None, count: int, first: int = 0) -> Iterator[tuple[Plan, int]]:
    """For each of `count` steps from the `first` a plan, and which of its steps it was."""
    head = Head(plan)
    for number in range(first, first + count):
        if folder is None or number < len(plan.steps):
            yield plan, number % len(plan.steps)
        else:
            yield head.read(folder / TAKEN / str(number)), 0
