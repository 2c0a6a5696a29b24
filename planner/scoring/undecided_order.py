"""What predictions leave undecided: which of a plan and its ties is the quickest, and what it is worth to know.

Every predicted time is off by a factor of its own. That of the order of two is known (`ORDER_SPREAD`), so the expected
time of whichever is the quickest is, and how much less it is than that of the plan.
"""

from collections.abc import Sequence
from math import log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from planner.plan.plan_file import Alternative, Plan
from planner.scoring.objective_value import objective_of
from planner.scoring.ranked_alternatives import ranked_alternatives, tie_spread

HALF_OF_80 = NormalDist().inv_cdf(0.9)  # half-width of an 80 % interval, in standard deviations
REACH, POINTS = 6.0, 2001  # the integral's, in standard deviations beyond the means, and its points
MOST_TIES = 3  # that are worth a run each: what a fourth adds to the gain is less than what it costs


class UndecidedOrder(NamedTuple):
    """The alternatives that may be better than the plan."""

    ties: tuple[Alternative, ...]  # the best first
    gain: float  # share of the objective by which the best of them and the plan is expected to be better than the plan


def undecided_order(plan: Plan) -> UndecidedOrder:
    """The best ties of a plan that compute in its data types, and what it is worth to measure them; none: no gain."""
    ties = tuple(each.tried for each in ranked_alternatives(plan) if each.tie and keeps_numerics(plan, each.tried))
    loss = objective_of(plan).loss
    values = [loss(plan.outcome.value), *(loss(tie.value or 0.0) for tie in ties[:MOST_TIES])]
    return UndecidedOrder(ties[:MOST_TIES], expected_gain(values, tie_spread(plan)))


def keeps_numerics(plan: Plan, tried: Alternative) -> bool:
    """Whether an alternative computes, and sums gradients, in the data types of the plan."""
    pairs = [(each, plan.layouts[name]) for name, each in tried.layouts.items()]
    return all(
        (each.dtype or own.dtype, each.gradients or own.gradients) == (own.dtype, own.gradients) for each, own in pairs
    )


def expected_gain(predicted: Sequence[float], spread: float) -> float:
    """By what share the least of several times is expected to be below the first.

    `predicted`: each is off by a factor of its own, such that the ratio of two is within e^±`spread` in 80 %.
    """
    deviation = spread / HALF_OF_80 / sqrt(2.0)
    if len(predicted) < 2 or not deviation or not predicted[0]:
        return 0.0
    means = np.array([log(each / predicted[0]) for each in predicted])
    low, high = means.min() - REACH * deviation, means.min() + REACH * deviation
    at = np.linspace(low, high, POINTS)
    normal = NormalDist(0.0, deviation)
    later = np.prod([[1.0 - normal.cdf(x - mean) for x in at] for mean in means], axis=0)
    least = low + float(np.trapezoid(later, at))  # E[min] = low + ∫ P(all are above x) dx
    return 1.0 - float(np.exp(least))
