"""Improve a rule stage by stage: one to three random changes at once, kept if the resulting order is no worse."""

from random import Random
from typing import TypeVar

from planner.orders.construct import Made, better, made
from planner.orders.greedy import Rule
from planner.orders.problem import CLOSE, Objective

Number = TypeVar("Number")
PATIENCE = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.5, 3.0)
STEPS = (-2, -1, 1, 2)  # micro-batches
CHANGES = (1, 1, 2, 3)  # numbers changed at once
SLOTS_PER_RULE = 4  # constructing an order takes as long as timing so many


def tune(start: Made, objective: Objective, work: int, lower_bound: float, seed: int) -> Made:
    """The best order found within `work` slots; the start itself where no rule built it."""
    if start.rule is None or start.within is None:
        return start
    pipeline, random = start.within, Random(seed).random
    best = current = start
    for _ in range(work // (SLOTS_PER_RULE * 3 * pipeline.stages * pipeline.micro_batches)):
        if best.seconds <= lower_bound * (1 + CLOSE):
            break
        chosen = current.rule
        assert chosen is not None
        for _ in range(pick(CHANGES, random())):
            chosen = changed(chosen, pipeline.micro_batches, (random(), random(), random()))
        candidate = made(pipeline, objective, chosen)
        if candidate.seconds <= current.seconds:
            current, best = candidate, better(best, candidate)
    return best


def changed(rule: Rule, micro_batches: int, draws: tuple[float, float, float]) -> Rule:
    """The rule with one number of one stage changed; `draws`: three numbers in [0, 1)."""
    stage = int(draws[0] * len(rule.most))
    which = int(draws[1] * 4)
    if which == 0:
        most = rule.most[stage] + pick(STEPS, draws[2])
        return rule._replace(most=replace_at(rule.most, stage, min(micro_batches, max(1, most))))
    if which == 1:
        eager = rule.eager[stage] + pick(STEPS, draws[2])
        return rule._replace(eager=replace_at(rule.eager, stage, min(micro_batches, max(0, eager))))
    if which == 2:
        return rule._replace(patience=replace_at(rule.patience, stage, pick(PATIENCE, draws[2])))
    return rule._replace(closing=replace_at(rule.closing, stage, pick(PATIENCE, draws[2])))


def replace_at(values: tuple[Number, ...], index: int, value: Number) -> tuple[Number, ...]:
    """The values with one of them replaced."""
    return (*values[:index], value, *values[index + 1 :])


def pick(values: tuple[Number, ...], draw: float) -> Number:
    """One of the values; `draw` in [0, 1)."""
    return values[int(draw * len(values))]
