"""Which rank has the least memory left, where ranks of several kinds have different amounts of it."""

from typing import NamedTuple

from planner.costs.memory import memory_cap
from planner.costs.pricing import pricing_of
from planner.plan.alike import alike_groups
from planner.plan.expand import expand
from planner.plan.model import Plan
from planner.simulate import memory_use, simulate
from planner.specs.cluster import kind_of
from planner.verify.held import activations, remade, states


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
    tasks = expand(plan, number, others.ranks)
    timeline = simulate(tasks, pricing.price, plan.size, others)
    held, besides = activations(plan, pricing), remade(plan, pricing)
    peaks = memory_use(timeline, tasks, held, states(plan), besides).peaks
    kinds = [kind_of(plan.uses.cluster, rank) for rank in range(plan.size)]
    caps = {kind: memory_cap(plan.uses.devices[kind], plan.uses.limits) for kind in kinds}
    return max((Fullest(rank, kinds[rank], peak, caps[kinds[rank]]) for rank, peak in enumerate(peaks)), key=share)


def share(rank: Fullest) -> float:
    return rank.peak / rank.cap if rank.cap > 0 else float("inf")
