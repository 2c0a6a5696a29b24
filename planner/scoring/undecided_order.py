"""What else was tried for a plan, best first; which of the plan and its ties is quickest, and what that is worth.

Two layouts of one job share most of what a prediction gets wrong, so that their order is surer than either's seconds.
Over the pairs of configurations that published sources measured on one job (345 jobs, each counted once) the ratio of
two predictions is within e^±0.18 of the measured ratio in 80 %; closer ones are called ties. What is impossible is
merged by its reason.

Every predicted time is off by a factor of its own. That of the order of two is known (`ORDER_SPREAD`), so the expected
time of whichever is the quickest is, and how much less it is than that of the plan: the regret of the choice. Of ties
those are measured, beside the plan, that are the cheapest of all that are worth nearly as much as all together: what is
not measured is known as it is predicted. A layout that is farther from everything measured than the others is less sure
by what that adds (nearest_run.py); one that was passed over for it (expected_seconds.py) is a tie that is predicted
quicker than the plan.
"""

import re
from collections.abc import Sequence
from itertools import combinations
from math import exp, hypot, inf, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from planner.plan.descriptions import alternative_text, flow_text
from planner.plan.plan_file import Alternative, Plan
from planner.scoring.expected_seconds import HALF_OF_80
from planner.scoring.nearest_run import nearest_run
from planner.scoring.objective_value import objective_of
from planner.units import listed

ORDER_SPREAD = 0.154  # half-width of the 80 % interval of the log of two predictions' ratio, their sources left out
GIVEN = ("zero", "sync", "recompute")  # what a strategy was given
CERTAIN = 1e-6  # a spread below counts as none
REACH, POINTS = 6.0, 2001  # the integral's, in standard deviations beyond the means, and its points
MOST_TIES = 3  # that are looked at: what a fourth adds to the gain is less than what it costs
MOST_OF_GAIN = 0.8  # of what all of these are worth: less of them that have it are measured alone
SETTLING_ROUNDS, SETTLING_STEPS = (
    3,
    4,
)  # to settle an order each is trained so often, and so many steps; the first of them warms up


class RankedAlternative(NamedTuple):
    """One that is possible."""

    tried: Alternative
    change: float  # of the objective against the plan's, as a share; negative: better
    tie: bool  # too close to tell, the software can launch it, and it computes in the plan's data types


class UnrankedAlternative(NamedTuple):
    """One or several of one strategy that have no value for one reason."""

    tried: Alternative  # the first of them
    text: str
    verdict: str  # impossible, too slow, or an estimate
    because: str


def ranked_alternatives(plan: Plan) -> list[RankedAlternative]:
    """The alternatives of a plan that have a value, the best first."""
    loss, within = objective_of(plan).loss, exp(tie_spread(plan))
    best = loss(plan.outcome.value)
    found = []
    for tried in plan.alternatives:
        if tried.value is not None:
            own = loss(tried.value)
            close = best <= own * within and own <= best * within
            tie = close and tried.launchable and keeps_numerics(plan, tried)
            found.append(RankedAlternative(tried, own / best - 1.0 if best else 0.0, tie))
    return sorted(found, key=lambda each: each.change)


def keeps_numerics(plan: Plan, tried: Alternative) -> bool:
    """Whether an alternative computes, and sums gradients, in the data types of the plan."""
    pairs = [(each, plan.layouts[name]) for name, each in tried.layouts.items()]
    return all(
        (each.dtype or own.dtype, each.gradients or own.gradients) == (own.dtype, own.gradients) for each, own in pairs
    )


def tie_spread(plan: Plan) -> float:
    """The logarithm of the ratio below which two predictions are a tie: never more than one of them is uncertain by."""
    return min(plan.prediction.spread, ORDER_SPREAD)


def unranked_alternatives(plan: Plan) -> list[UnrankedAlternative]:
    """The alternatives of a plan that are impossible, too slow to be simulated, or estimates: of one strategy with one
    reason, whatever its numbers, as one.
    """
    alike: dict[tuple[str, str], list[Alternative]] = {}
    for each in plan.alternatives:
        if each.value is None:
            alike.setdefault((each.strategy, re.sub(r"[\d.,]+", "#", each.because)), []).append(each)
    return [
        UnrankedAlternative(
            group[0],
            merged_text(group, plan),
            "too slow" if group[0].too_slow else "impossible" if group[0].about is None else "estimate",
            merged_reason([each.because for each in group]),
        )
        for group in alike.values()
    ]


def merged_reason(reasons: Sequence[str]) -> str:
    """The first of several reasons, and whether the others have other numbers."""
    return reasons[0] if len({*reasons}) == 1 else f"{reasons[0]}; the others likewise, with other numbers"


def merged_text(group: Sequence[Alternative], plan: Plan) -> str:
    """`data_ranks with zero: 0, 1 or 2, recompute: none or full`: the values that each field has in any of them."""
    if len(group) == 1:
        return alternative_text(group[0], plan.made.strategy)
    each_value = {
        name: [*dict.fromkeys(flow_text(getattr(each, name)) for each in group if getattr(each, name) is not None)]
        for name in GIVEN
    }
    fields = [f"{name}: {listed(sorted(values), 'or')}" for name, values in each_value.items() if values]
    return f"{group[0].strategy} with {', '.join(fields)}" if fields else group[0].strategy


class UndecidedOrder(NamedTuple):
    """The alternatives that may be better than the plan, and are to be measured beside it."""

    ties: tuple[Alternative, ...]  # the best first
    gain: float  # share of the objective by which the best is then expected to be better than the plan
    seconds: float  # of the steps that settle it, as predicted


def undecided_order(plan: Plan) -> UndecidedOrder:
    """The ties of a plan that compute in its data types and are the cheapest to measure, and what that is worth; none:
    no gain. No job asks for what towers of several tasks are beside.
    """
    ranked = [] if plan.uses.tasks else ranked_alternatives(plan)
    first = [each.tried for each in ranked if each.tie][:MOST_TIES]
    loss = objective_of(plan).loss
    values = [loss(plan.outcome.value), *(loss(tie.value or 0.0) for tie in first)]
    spreads = own_spreads(plan, first)
    chosen = cheapest_measurement(values, spreads)
    measured = sum(values[at] for at in chosen)
    steps = measured / values[0] * plan.prediction.step_seconds / len(plan.steps) if first and values[0] else 0.0
    ties = tuple(first[at - 1] for at in chosen[1:])
    return UndecidedOrder(ties, expected_gain(values, spreads, chosen), SETTLING_ROUNDS * SETTLING_STEPS * steps)


def cheapest_measurement(predicted: Sequence[float], spreads: Sequence[float]) -> tuple[int, ...]:
    """Which of several times to measure, the first among them: of all choices with most of the gain of all the one that
    takes least.
    """
    others = range(1, len(predicted))
    enough = MOST_OF_GAIN * expected_gain(predicted, spreads)
    every = [(0, *some) for count in others for some in combinations(others, count)]
    able = [some for some in every if expected_gain(predicted, spreads, some) >= enough]
    return min(able, key=lambda some: (sum(predicted[at] for at in some), some), default=(0,))


def own_spreads(plan: Plan, ties: Sequence[Alternative]) -> list[float]:
    """Half-widths of the 80 % intervals of the logarithms of the factors by which the plan and each tie are off, of
    their own: such that the ratio of two is within the order's, and more for those that are far from what was measured.
    """
    found = [nearest_run(plan, layouts) for layouts in ({}, *(tie.layouts for tie in ties))]
    far = [each.spread if each else 0.0 for each in found]
    order, shared = tie_spread(plan) / sqrt(2.0), min(far)  # what all have in common moves all of them
    return [hypot(order, sqrt(own**2 - shared**2)) for own in far]


def expected_gain(predicted: Sequence[float], spreads: Sequence[float], measured: Sequence[int] | None = None) -> float:
    """By what share the least of several times is expected to be below the first, where some are measured, or all, and
    the others are taken as predicted.

    `predicted`: each is off by a factor of its own, within e^±spread in 80 %.
    """
    if len(predicted) < 2 or min(spreads) < CERTAIN or not predicted[0]:
        return 0.0
    chosen = range(len(predicted)) if measured is None else measured
    means = [log(each / predicted[0]) for each in predicted]
    normals = [NormalDist(means[at], spreads[at] / HALF_OF_80) for at in chosen]
    known = min((mean for at, mean in enumerate(means) if at not in chosen), default=inf)
    low = min(each.mean - REACH * each.stdev for each in normals)
    high = min(known, *(each.mean + REACH * each.stdev for each in normals))
    if high <= low:
        return 1.0 - exp(high)
    at = np.linspace(low, high, POINTS)
    later = np.prod([[1.0 - each.cdf(x) for x in at] for each in normals], axis=0)
    least = low + float(np.trapezoid(later, at))  # E[min] = low + ∫ P(all are above x) dx
    return 1.0 - exp(least)
