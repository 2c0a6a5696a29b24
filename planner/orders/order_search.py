"""Search for the best order of a pipeline, with a lower bound: construct, improve, and prove small ones optimal."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.orders.anneal import anneal, swap_neighbours
from planner.orders.construct import construct, tune_rule
from planner.orders.fixed_sequence_bound import OrderBound, bound_fixed_sequence
from planner.orders.pipeline_problem import OPTIMAL_WITHIN, Order, OrderObjective, PipelineProblem
from planner.orders.slot_timing import fits_memory, objective_seconds

SLOTS_BY_EFFORT = {1: 0, 2: 4_000_000, 3: 20_000_000, 4: 100_000_000}  # slots looked at in the local search, by effort
EXACT_UP_TO = 32  # micro-batches times stages up to which CP-SAT is used as well, from effort 3 on
TUNING_SHARE = 0.4  # share of these slots for tuning rules; the rest is for moving slots


@dataclass(frozen=True, slots=True)
class OrderResult:
    """An order, its seconds, and a lower bound."""

    order: Order
    seconds: float
    bound: OrderBound
    orders_tried: int  # orders constructed by rules
    slots_allowed: int  # slots that the local search was allowed to look at

    @property
    def optimal(self) -> bool:
        return self.seconds <= self.bound.seconds * (1 + OPTIMAL_WITHIN)

    @property
    def effort(self) -> str:
        return f"{self.orders_tried} orders" + (f", {self.slots_allowed / 1e6:g} M slots" if self.slots_allowed else "")


def search_order(
    pipeline: PipelineProblem,
    objective: OrderObjective = "step",
    effort: int = 2,
    known: Iterable[Order] = (),
    seed: int = 0,
) -> OrderResult:
    """The best order found, no worse than known orders that fit. Raises Infeasible when a stage cannot hold a
    micro-batch.
    """
    pipeline.require_capacity()
    bound = bound_fixed_sequence(pipeline, objective)
    constructed = construct(
        pipeline, objective, bound.seconds, [order for order in known if fits_memory(pipeline, order)]
    )
    order = swap_neighbours(pipeline, objective, constructed.order, bound.seconds)
    seconds, work = objective_seconds(pipeline, order, objective), 0
    if seconds > bound.seconds * (1 + OPTIMAL_WITHIN) and SLOTS_BY_EFFORT[effort]:
        work = SLOTS_BY_EFFORT[effort]
        tuned = tune_rule(constructed, objective, int(work * TUNING_SHARE), bound.seconds, seed)
        start = tuned.order if tuned.seconds < seconds else order
        order = anneal(pipeline, objective, start, int(work * (1 - TUNING_SHARE)), bound.seconds, seed)
        seconds = objective_seconds(pipeline, order, objective)
    result = OrderResult(order, seconds, bound, constructed.orders_tried, work)
    small = pipeline.stages * pipeline.micro_batches <= EXACT_UP_TO
    return result if result.optimal or effort < 3 or not small else improve_exactly(pipeline, objective, result, effort)


def improve_exactly(
    pipeline: PipelineProblem, objective: OrderObjective, result: OrderResult, effort: int
) -> OrderResult:
    """The result improved by CP-SAT from there on, and its proof, over orders that keep the sequence.

    The bound of a plan's order is over any sequence, and another one.
    """
    from planner.orders.cp_sat_order import solve_order_exactly
    from planner.programs import SolverLimits

    exact = solve_order_exactly(pipeline, objective, SolverLimits(effort=effort - 1), result.order)
    bound = OrderBound(exact.bound, "exact") if exact.bound > result.bound.seconds else result.bound
    if exact.order and fits_memory(pipeline, exact.order):
        seconds = objective_seconds(pipeline, exact.order, objective)
        if seconds < result.seconds:
            return replace(result, order=exact.order, seconds=seconds, bound=bound)
    return replace(result, bound=replace(bound, seconds=min(bound.seconds, result.seconds)))
