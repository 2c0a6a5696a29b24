"""Seconds of a piece of work, with their source and their uncertainty."""

from collections.abc import Iterable
from dataclasses import dataclass

from planner.specs.base import Source


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one piece of work."""

    value: float  # seconds
    source: Source
    spread: float  # half-width of the 80 % interval over the value
    comm: float = 0.0  # seconds of `value` that are exposed communication


NO_COST = Cost(0.0, "measured", 0.0)


def least_trusted(sources: list[Source]) -> Source:
    """The least trustworthy of several sources: a sum is only as good as its worst term."""
    order: list[Source] = ["measured", "fitted", "published", "analytic"]
    return max(sources, key=order.index, default="measured")


def total_cost(*costs: Cost) -> Cost:
    """The cost of several pieces of work one after another; their spreads add up as if their errors were fully
    correlated.
    """
    seconds = sum(cost.value for cost in costs)
    spread = sum(cost.value * cost.spread for cost in costs) / seconds if seconds else 0.0
    sources = [cost.source for cost in costs if cost.value > 0]
    return Cost(seconds, least_trusted(sources), spread, sum(cost.comm for cost in costs))


def slowest_cost(costs: Iterable[Cost]) -> Cost:
    """The cost of the slowest of several ranks that wait for each other."""
    return max(costs, key=lambda cost: cost.value)
