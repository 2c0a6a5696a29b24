"""What else was tried for a plan, in the order in which people read it: the best first, ties called ties, and what is
impossible merged by its reason.

Two layouts of one job share most of what a prediction gets wrong, so that their order is surer than either's seconds.
Over the pairs of configurations that published sources measured on one job (345 jobs, each counted once) the ratio of
two predictions is within e^±0.18 of the measured ratio in 80 %; closer ones are called ties.
"""

import re
from collections.abc import Sequence
from math import exp
from typing import NamedTuple

from planner.plan.descriptions import alternative_text, flow_text
from planner.plan.plan_file import Alternative, Plan
from planner.scoring.objective_value import objective_of

ORDER_SPREAD = 0.154  # half-width of the 80 % interval of the log of two predictions' ratio, their sources left out
GIVEN = ("zero", "sync", "recompute")  # what a strategy was given


class RankedAlternative(NamedTuple):
    """One that is possible."""

    tried: Alternative
    change: float  # of the objective against the plan's, as a share; negative: better
    tie: bool  # too close to tell, the software can launch it, and it computes in the plan's data types


class UnrankedAlternative(NamedTuple):
    """One or several of one strategy that have no value for one reason."""

    text: str
    verdict: str  # impossible, or too slow
    because: str


def ranked_alternatives(plan: Plan) -> list[RankedAlternative]:
    """The possible ones, the best first."""
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
    """Those that are impossible, or too slow to be simulated: of one strategy with one reason, whatever its numbers, as
    one.
    """
    alike: dict[tuple[str, str], list[Alternative]] = {}
    for each in plan.alternatives:
        if each.value is None:
            alike.setdefault((each.strategy, re.sub(r"[\d.,]+", "#", each.because)), []).append(each)
    return [
        UnrankedAlternative(
            merged_text(group, plan),
            "too slow" if group[0].too_slow else "impossible",
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
    fields = [f"{name}: {one_of(sorted(values))}" for name, values in each_value.items() if values]
    return f"{group[0].strategy} with {', '.join(fields)}" if fields else group[0].strategy


def one_of(values: Sequence[str]) -> str:
    """`0, 1 or 2`."""
    return " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
