"""A rule improved stage by stage: a number or three changed at random, and kept if the order it makes is no worse."""

from random import Random
from typing import TypeVar

from planner.orders.construct import Made, better, made
from planner.orders.greedy import Rule
from planner.orders.problem import CLOSE, Objective

Number = TypeVar("Number")
PATIENCE = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.5, 3.0)
STEPS = (-2, -1, 1, 2)  # micro-batches
CHANGES = (1, 1, 2, 3)  # at once
LOOKS = 4  # making an order takes as long as timing so many


def tune(start: Made, objective: Objective, work: int, floor: float, seed: int) -> Made:
    """The best found in `work` slots put; the start itself where no rule made it."""
    if start.rule is None or start.within is None:
        return start
    pipeline, chance = start.within, Random(seed).random
    best = now = start
    for _ in range(work // (LOOKS * 3 * pipeline.stages * pipeline.micro_batches)):
        if best.seconds <= floor * (1 + CLOSE):
            break
        chosen = now.rule
        assert chosen is not None
        for _ in range(pick(CHANGES, chance())):
            chosen = changed(chosen, pipeline.micro_batches, (chance(), chance(), chance()))
        found = made(pipeline, objective, chosen)
        if found.seconds <= now.seconds:
            now, best = found, better(best, found)
    return best


def changed(rule: Rule, micro_batches: int, chances: tuple[float, float, float]) -> Rule:
    """One number of one stage."""
    stage = int(chances[0] * len(rule.most))
    which = int(chances[1] * 4)
    if which == 0:
        most = rule.most[stage] + pick(STEPS, chances[2])
        return rule._replace(most=put(rule.most, stage, min(micro_batches, max(1, most))))
    if which == 1:
        eager = rule.eager[stage] + pick(STEPS, chances[2])
        return rule._replace(eager=put(rule.eager, stage, min(micro_batches, max(0, eager))))
    if which == 2:
        return rule._replace(patience=put(rule.patience, stage, pick(PATIENCE, chances[2])))
    return rule._replace(closing=put(rule.closing, stage, pick(PATIENCE, chances[2])))


def put(values: tuple[Number, ...], place: int, value: Number) -> tuple[Number, ...]:
    return (*values[:place], value, *values[place + 1 :])


def pick(values: tuple[Number, ...], chance: float) -> Number:
    return values[int(chance * len(values))]
