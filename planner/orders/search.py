"""The best order found for a pipeline, and what none can beat: construct, improve, and for small ones prove."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.orders.anneal import anneal
from planner.orders.bound import Floor, floor_of
from planner.orders.construct import construct
from planner.orders.polish import polish
from planner.orders.problem import CLOSE, Objective, Order, Pipeline
from planner.orders.timing import fits, seconds_of
from planner.orders.tune import tune

WORK = {1: 0, 2: 4_000_000, 3: 20_000_000, 4: 100_000_000}  # slots looked at in improving, by effort
SMALL = 32  # micro-batches times stages up to which the exact program joins in, from effort 3 on
TUNING = 0.4  # of them: the rest moves slots about


@dataclass(frozen=True, slots=True)
class Found:
    """An order, what it is worth, and what bounds it."""

    order: Order
    seconds: float
    floor: Floor
    tried: int  # orders made by rules
    work: int  # slots that improving was allowed to look at

    @property
    def optimal(self) -> bool:
        return self.seconds <= self.floor.seconds * (1 + CLOSE)

    @property
    def effort(self) -> str:
        return f"{self.tried} orders" + (f", {self.work / 1e6:g} M slots" if self.work else "")


def search(
    pipeline: Pipeline, objective: Objective = "step", effort: int = 2, known: Iterable[Order] = (), seed: int = 0
) -> Found:
    """No worse than those that are known and fit. Raises Infeasible when a stage cannot hold a micro-batch."""
    pipeline.require_room()
    floor = floor_of(pipeline, objective)
    made = construct(pipeline, objective, floor.seconds, [order for order in known if fits(pipeline, order)])
    order = polish(pipeline, objective, made.order, floor.seconds)
    seconds, work = seconds_of(pipeline, order, objective), 0
    if seconds > floor.seconds * (1 + CLOSE) and WORK[effort]:
        work = WORK[effort]
        tuned = tune(made, objective, int(work * TUNING), floor.seconds, seed)
        start = tuned.order if tuned.seconds < seconds else order
        order = anneal(pipeline, objective, start, int(work * (1 - TUNING)), floor.seconds, seed)
        seconds = seconds_of(pipeline, order, objective)
    found = Found(order, seconds, floor, made.tried, work)
    small = pipeline.stages * pipeline.micro_batches <= SMALL
    return found if found.optimal or effort < 3 or not small else proven(pipeline, objective, found, effort)


def proven(pipeline: Pipeline, objective: Objective, found: Found, effort: int) -> Found:
    """With what CP-SAT finds and proves from there on, of orders that keep the sequence.

    For who asks about a sequence as it is. Of a plan's order any sequence may be asked about: its bound is another one.
    """
    from planner.orders.exact import solve_exactly
    from planner.solve.answer import Limits

    exact = solve_exactly(pipeline, objective, Limits(effort=effort - 1), found.order)
    floor = Floor(exact.bound, "exact") if exact.bound > found.floor.seconds else found.floor
    if exact.order and fits(pipeline, exact.order):
        seconds = seconds_of(pipeline, exact.order, objective)
        if seconds < found.seconds:
            return replace(found, order=exact.order, seconds=seconds, floor=floor)
    return replace(found, floor=replace(floor, seconds=min(floor.seconds, found.seconds)))
