"""Of several predicted plans the one to choose: that of the least expected seconds.

A plan of predicted seconds m takes T = m · e^(c + x): the error c is of all plans of a job alike, as its device,
framework and model are; x is a plan's own, of mean 0 and a deviation s that grows with the distance from what was
measured (nearest_run.py). So

    E[T] = m · e^(s²/2) · E[e^c]

and the last factor leaves the order as it is, as does what distances have in common. The least expected seconds are
the least expected regret, E[T − least T], as the least T does not depend on what is chosen. Where every s is alike,
or none is known, this is the choice by predicted seconds. Plans whose modules share devices are less sure by the error
of that price (shared_devices.py). Bounds, gaps and values are of predicted seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf
from statistics import NormalDist
from typing import TypeVar

from planner.plan.plan_file import Plan
from planner.scoring.nearest_run import NearestRun, nearest_run
from planner.scoring.shared_devices import shares_doubt, shares_text
from planner.specs.parallelism import Parallelism

HALF_OF_80 = NormalDist().inv_cdf(0.9)  # half-width of an 80 % interval, in standard deviations
Tried = TypeVar("Tried")


def least_expected(
    tried: Sequence[Tried], seconds: Callable[[Tried], float], doubt: Callable[[Tried], float]
) -> Tried | None:
    """The one of least expected seconds, of equals the quickest by prediction, then the first; None of none.

    `doubt` is at least 1, and asked only of those whose predicted seconds are below the least expected so far.
    """
    chosen, least = None, inf
    for each in sorted(tried, key=seconds):
        if chosen is not None and seconds(each) >= least:
            break
        expected = seconds(each) * doubt(each)
        if chosen is None or expected < least:
            chosen, least = each, expected
    return chosen


def plan_doubt(plan: Plan, layouts: Mapping[str, Parallelism] | None = None) -> float:
    """Expected over predicted seconds of a plan, or of it with these `layouts` of modules, by its own error."""
    return doubt_at(nearest_run(plan, layouts)) * shares_doubt(plan)


def doubt_at(nearest: NearestRun | None) -> float:
    """The mean of a factor whose median is 1 and whose logarithm is normal; 1 where no run is near."""
    return exp((nearest.spread / HALF_OF_80) ** 2 / 2.0) if nearest else 1.0


def passed_over(chosen: Plan, tried: Plan, ratio: float) -> str:
    """Why a plan was not chosen that is predicted quicker; empty where it is not. `ratio`: its seconds over those of
    the chosen one.
    """
    if ratio >= 1.0:
        return ""
    quicker = 100 * (1.0 - ratio)
    if rests := shares_text(tried):
        return f"{quicker:.2g} % quicker by prediction, were that sure; shares of {rests}"
    return f"{quicker:.2g} % quicker by prediction, and less sure: it differs more from every run that was measured"
