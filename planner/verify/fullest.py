"""Which rank has the least memory left, where ranks of several kinds have different amounts of it."""

from typing import NamedTuple

from planner.costs.pricing import pricing_of
from planner.plan.alike import alike_groups
from planner.plan.expand import expand
from planner.plan.model import Plan
from planner.simulate import simulate
from planner.verify.held import Holding


class Fullest(NamedTuple):
    """A rank over all steps of a plan."""

    rank: int
    kind: str
    peak: float  # bytes
    cap: float  # bytes that its device allows


def fullest(plan: Plan) -> Fullest:
    """The rank with the largest share of its device's allowance in use, in any step; the first of these."""
    return max((of_step(plan, number) for number in range(len(plan.steps))), key=share)


def of_step(plan: Plan, number: int) -> Fullest:
    pricing, others = pricing_of(plan), alike_groups(plan, number)
    tasks, holding = expand(plan, number, others.ranks), Holding(plan, pricing)
    timeline = simulate(tasks, pricing.among(tasks), plan.size, others)
    peaks = holding.over(timeline, tasks).peaks
    return max((Fullest(r, holding.kind(r), peak, holding.allowed(r)) for r, peak in enumerate(peaks)), key=share)


def share(rank: Fullest) -> float:
    return rank.peak / rank.cap if rank.cap > 0 else float("inf")
