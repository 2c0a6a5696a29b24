"""Improve an order by swapping neighbouring slots of each stage, while that helps."""

from planner.orders.anneal import score_and_seconds, stage_order_fits
from planner.orders.pipeline_problem import OPTIMAL_WITHIN, Order, OrderObjective, PipelineProblem

SWEEPS = 3


def swap_neighbours(pipeline: PipelineProblem, objective: OrderObjective, order: Order, lower_bound: float) -> Order:
    """An order at least as good; stops at the lower bound."""
    current, (score, seconds) = order, score_and_seconds(pipeline, objective, order)
    for _ in range(SWEEPS):
        before = score
        for s in range(pipeline.stages):
            for place in range(3 * pipeline.micro_batches - 1):
                slots = current[s]
                if seconds <= lower_bound * (1 + OPTIMAL_WITHIN):
                    return current
                if slots[place] == slots[place + 1]:
                    continue
                slots = slots[:place] + slots[place + 1] + slots[place] + slots[place + 2 :]
                if not stage_order_fits(pipeline, s, slots):
                    continue
                changed = (*current[:s], slots, *current[s + 1 :])
                changed_score, changed_seconds = score_and_seconds(pipeline, objective, changed)
                if changed_score < score and changed_seconds <= seconds:
                    current, score, seconds = changed, changed_score, changed_seconds
        if score == before:
            break
    return current
