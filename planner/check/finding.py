"""One difference between two plans, or one false statement of a plan, for machines and for people."""

from typing import Literal

from planner.specs.base import Spec

Category = Literal["illegal", "regression", "gain", "drift", "stale_inputs", "added", "removed"]
CATEGORIES: tuple[Category, ...] = ("illegal", "regression", "gain", "drift", "stale_inputs", "added", "removed")
BLOCKING: tuple[Category, ...] = ("illegal", "regression")  # all others inform


class Finding(Spec):
    """What was found, where in the plan, and both sides of it; values and shares are numbers, the rest is text."""

    category: Category
    where: str
    old: float | str | None
    new: float | str | None
    message: str
