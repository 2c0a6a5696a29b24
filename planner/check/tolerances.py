"""Classifies changes of objective value and gap. Symmetrical: a regression from a to b is a gain from b to a."""

from dataclasses import dataclass

from planner.check.finding import Category

EQUAL = 1e-6  # relative: two evaluations of the same plan differ by less
SLACK = 1e-9  # so that a change of exactly the tolerance is tolerated


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How much worse a plan may get without a regression."""

    value: float = 0.02  # relative to the smaller value
    gap: float = 0.01  # absolute: one point


def classify_value(old: float, new: float, tolerance: float) -> Category | None:
    """Classify a change of a value of which less is better; None when both are the same."""
    factor = (1 + tolerance) * (1 + SLACK)
    if new > old * factor:
        return "regression"
    if old > new * factor:
        return "gain"
    return None if is_equal(old, new) else "drift"


def classify_gap(old: float, new: float, tolerance: float) -> Category | None:
    """Classify a change of the gap, of which less is better; None within the tolerance."""
    if new - old > tolerance + SLACK:
        return "regression"
    if old - new > tolerance + SLACK:
        return "gain"
    return None


def is_equal(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))
