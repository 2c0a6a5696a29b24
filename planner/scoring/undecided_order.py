"""What predictions leave undecided: which of a plan and its ties is the quickest, and what it is worth to know.

Every predicted time is off by a factor of its own. That of the order of two is known (`ORDER_SPREAD`), so the expected
time of whichever is the quickest is, and how much less it is than that of the plan: the regret of the choice. A layout
that is farther from everything measured than the others is less sure by what that adds (nearest_run.py); one that was
passed over for it (expected_seconds.py) is a tie that is predicted quicker than the plan.
"""

from collections.abc import Sequence
from math import hypot, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from planner.plan.plan_file import Alternative, Plan
from planner.scoring.expected_seconds import HALF_OF_80
from planner.scoring.nearest_run import nearest_run
from planner.scoring.objective_value import objective_of
from planner.scoring.ranked_alternatives import ranked_alternatives, tie_spread

CERTAIN = 1e-6  # a spread below counts as none
REACH, POINTS = 6.0, 2001  # the integral's, in standard deviations beyond the means, and its points
MOST_TIES = 3  # that are worth a run each: what a fourth adds to the gain is less than what it costs
SETTLING_ROUNDS, SETTLING_STEPS = (
    3,
    4,
)  # to settle an order each is trained so often, and so many steps; the first of them warms up


class UndecidedOrder(NamedTuple):
    """The alternatives that may be better than the plan."""

    ties: tuple[Alternative, ...]  # the best first
    gain: float  # share of the objective by which the best of them and the plan is expected to be better than the plan
    seconds: float  # of the steps that settle it, as predicted


def undecided_order(plan: Plan) -> UndecidedOrder:
    """The best ties of a plan that compute in its data types, and what it is worth to measure them; none: no gain."""
    ties = tuple(each.tried for each in ranked_alternatives(plan) if each.tie)
    loss = objective_of(plan).loss
    first = ties[:MOST_TIES]
    values = [loss(plan.outcome.value), *(loss(tie.value or 0.0) for tie in first)]
    spreads = own_spreads(plan, first)
    steps = sum(values) / values[0] * plan.prediction.step_seconds / len(plan.steps) if ties and values[0] else 0.0
    return UndecidedOrder(first, expected_gain(values, spreads), SETTLING_ROUNDS * SETTLING_STEPS * steps)


def own_spreads(plan: Plan, ties: Sequence[Alternative]) -> list[float]:
    """Half-widths of the 80 % intervals of the logarithms of the factors by which the plan and each tie are off, of
    their own: such that the ratio of two is within the order's, and more for those that are far from what was measured.
    """
    found = [nearest_run(plan, layouts) for layouts in ({}, *(tie.layouts for tie in ties))]
    far = [each.spread if each else 0.0 for each in found]
    order, shared = tie_spread(plan) / sqrt(2.0), min(far)  # what all have in common moves all of them
    return [hypot(order, sqrt(own**2 - shared**2)) for own in far]


def expected_gain(predicted: Sequence[float], spreads: Sequence[float]) -> float:
    """By what share the least of several times is expected to be below the first.

    `predicted`: each is off by a factor of its own, within e^±spread in 80 %.
    """
    if len(predicted) < 2 or min(spreads) < CERTAIN or not predicted[0]:
        return 0.0
    means = np.array([log(each / predicted[0]) for each in predicted])
    normals = [NormalDist(mean, spread / HALF_OF_80) for mean, spread in zip(means, spreads, strict=True)]
    low = min(each.mean - REACH * each.stdev for each in normals)
    high = min(each.mean + REACH * each.stdev for each in normals)
    at = np.linspace(low, high, POINTS)
    later = np.prod([[1.0 - each.cdf(x) for x in at] for each in normals], axis=0)
    least = low + float(np.trapezoid(later, at))  # E[min] = low + ∫ P(all are above x) dx
    return 1.0 - float(np.exp(least))
