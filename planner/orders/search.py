"""Search for the best order of a pipeline, with a lower bound: construct, improve, and prove small ones optimal."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.orders.anneal import anneal
from planner.orders.bound import Floor, floor_of
from planner.orders.construct import construct
from planner.orders.polish import polish
from planner.orders.problem import CLOSE, Objective, Order, Pipeline
from planner.orders.timing import fits, seconds_of
from planner.orders.tune import tune

WORK = {1: 0, 2: 4_000_000, 3: 20_000_000, 4: 100_000_000}  # slots looked at in the local search, by effort
EXACT_UP_TO = 32  # micro-batches times stages up to which CP-SAT is used as well, from effort 3 on
TUNING_SHARE = 0.4  # share of these slots for tuning rules; the rest is for moving slots


@dataclass(frozen=True, slots=True)
class Found:
    """An order, its seconds, and a lower bound."""

    order: Order
    seconds: float
    floor: Floor
    tried: int  # orders constructed by rules
    work: int  # slots that the local search was allowed to look at

    @property
    def optimal(self) -> bool:
        return self.seconds <= self.floor.seconds * (1 + CLOSE)

    @property
    def effort(self) -> str:
        return f"{self.tried} orders" + (f", {self.work / 1e6:g} M slots" if self.work else "")


def search(
    pipeline: Pipeline, objective: Objective = "step", effort: int = 2, known: Iterable[Order] = (), seed: int = 0
) -> Found:
    """The best order found, no worse than known orders that fit. Raises Infeasible when a stage cannot hold a
    micro-batch.
    """
    pipeline.require_room()
    bound = floor_of(pipeline, objective)
    constructed = construct(pipeline, objective, bound.seconds, [order for order in known if fits(pipeline, order)])
    order = polish(pipeline, objective, constructed.order, bound.seconds)
    seconds, work = seconds_of(pipeline, order, objective), 0
    if seconds > bound.seconds * (1 + CLOSE) and WORK[effort]:
        work = WORK[effort]
        tuned = tune(constructed, objective, int(work * TUNING_SHARE), bound.seconds, seed)
        start = tuned.order if tuned.seconds < seconds else order
        order = anneal(pipeline, objective, start, int(work * (1 - TUNING_SHARE)), bound.seconds, seed)
        seconds = seconds_of(pipeline, order, objective)
    result = Found(order, seconds, bound, constructed.tried, work)
    small = pipeline.stages * pipeline.micro_batches <= EXACT_UP_TO
    return result if result.optimal or effort < 3 or not small else proven(pipeline, objective, result, effort)


def proven(pipeline: Pipeline, objective: Objective, result: Found, effort: int) -> Found:
    """The result improved by CP-SAT from there on, and its proof, over orders that keep the sequence.

    The bound of a plan's order is over any sequence, and another one.
    """
    from planner.orders.exact import solve_exactly
    from planner.solve.answer import Limits

    exact = solve_exactly(pipeline, objective, Limits(effort=effort - 1), result.order)
    bound = Floor(exact.bound, "exact") if exact.bound > result.floor.seconds else result.floor
    if exact.order and fits(pipeline, exact.order):
        seconds = seconds_of(pipeline, exact.order, objective)
        if seconds < result.seconds:
            return replace(result, order=exact.order, seconds=seconds, floor=bound)
    return replace(result, floor=replace(bound, seconds=min(bound.seconds, result.seconds)))
