"""Improve a rule stage by stage: one to three random changes at once, kept if the resulting order is no worse."""

from random import Random
from typing import TypeVar

from planner.orders.construct import ConstructedOrder, order_by_rule, quicker
from planner.orders.list_scheduling import PriorityRule
from planner.orders.pipeline_problem import OPTIMAL_WITHIN, OrderObjective

Number = TypeVar("Number")
PATIENCE = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.5, 3.0)
STEPS = (-2, -1, 1, 2)  # micro-batches
CHANGES = (1, 1, 2, 3)  # numbers changed at once
SLOTS_PER_RULE = 4  # constructing an order takes as long as timing so many


def tune_rule(
    start: ConstructedOrder, objective: OrderObjective, work: int, lower_bound: float, seed: int
) -> ConstructedOrder:
    """The best order found within `work` slots; the start itself where no rule built it."""
    if start.rule is None or start.pipeline is None:
        return start
    pipeline, random = start.pipeline, Random(seed).random
    best = current = start
    for _ in range(work // (SLOTS_PER_RULE * 3 * pipeline.stages * pipeline.micro_batches)):
        if best.seconds <= lower_bound * (1 + OPTIMAL_WITHIN):
            break
        chosen = current.rule
        assert chosen is not None
        for _ in range(pick(CHANGES, random())):
            chosen = changed_rule(chosen, pipeline.micro_batches, (random(), random(), random()))
        candidate = order_by_rule(pipeline, objective, chosen)
        if candidate.seconds <= current.seconds:
            current, best = candidate, quicker(best, candidate)
    return best


def changed_rule(rule: PriorityRule, micro_batches: int, draws: tuple[float, float, float]) -> PriorityRule:
    """The rule with one number of one stage changed; `draws`: three numbers in [0, 1)."""
    stage = int(draws[0] * len(rule.max_in_flight))
    which = int(draws[1] * 4)
    if which == 0:
        most = rule.max_in_flight[stage] + pick(STEPS, draws[2])
        return rule._replace(max_in_flight=replace_at(rule.max_in_flight, stage, min(micro_batches, max(1, most))))
    if which == 1:
        eager = rule.forward_first_below[stage] + pick(STEPS, draws[2])
        return rule._replace(
            forward_first_below=replace_at(rule.forward_first_below, stage, min(micro_batches, max(0, eager)))
        )
    if which == 2:
        return rule._replace(patience=replace_at(rule.patience, stage, pick(PATIENCE, draws[2])))
    return rule._replace(final_patience=replace_at(rule.final_patience, stage, pick(PATIENCE, draws[2])))


def replace_at(values: tuple[Number, ...], index: int, value: Number) -> tuple[Number, ...]:
    """The values with one of them replaced."""
    return (*values[:index], value, *values[index + 1 :])


def pick(values: tuple[Number, ...], draw: float) -> Number:
    """One of the values; `draw` in [0, 1)."""
    return values[int(draw * len(values))]
