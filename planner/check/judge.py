"""When is a number worse? Symmetrical: what is a regression from a to b is a gain from b to a."""

from dataclasses import dataclass

from planner.check.finding import Category

SAME = 1e-6  # relative: two evaluations of the same plan differ by less
SLACK = 1e-9  # so that a change of exactly the tolerance is tolerated


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How much worse a plan may be."""

    value: float = 0.02  # of the smaller value
    gap: float = 0.01  # absolute: one point


def judge_value(old: float, new: float, tolerance: float) -> Category | None:
    """Of two values, less is better. None when they are the same."""
    factor = (1 + tolerance) * (1 + SLACK)
    if new > old * factor:
        return "regression"
    if old > new * factor:
        return "gain"
    return None if same(old, new) else "drift"


def judge_gap(old: float, new: float, tolerance: float) -> Category | None:
    """Of two gaps, less is better; within the tolerance they say nothing that the value does not."""
    if new - old > tolerance + SLACK:
        return "regression"
    if old - new > tolerance + SLACK:
        return "gain"
    return None


def same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * max(abs(one), abs(other))
