"""The result type of a check: one difference between two plans, or one false statement of a plan."""

from typing import Literal

from planner.specs.base import Spec

Category = Literal["illegal", "regression", "gain", "drift", "stale_inputs", "added", "removed"]
CATEGORIES: tuple[Category, ...] = ("illegal", "regression", "gain", "drift", "stale_inputs", "added", "removed")
BLOCKING: tuple[Category, ...] = ("illegal", "regression")  # all others only inform


class Finding(Spec):
    """What was found, where in the plan, and both sides; objective values and gaps are numbers, the rest is text."""

    category: Category
    where: str
    old: float | str | None
    new: float | str | None
    message: str
