"""Orders constructed by priority rules, the best of many; more memory never makes the result worse.

Rules differ in how many micro-batches a stage admits, from as many as 1F1B (p − s on stage s) to more than twice that
as in ZB-H2 (arXiv 2401.10241), in whether a ready F or a ready I goes first, and in how long a W may delay others.

More memory may lead a rule into a worse order. So every rule is also tried with the memory of each smaller whole number
of micro-batches, largest first: what fits there fits here. Very long pipelines stop early (MAX_SLOTS).

The best rule is then tuned stage by stage: one to three random changes at once, kept if the order is no worse.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from math import inf
from random import Random
from typing import NamedTuple, TypeVar

from planner.orders.list_scheduling import PriorityRule, greedy
from planner.orders.pipeline_problem import OPTIMAL_WITHIN, Order, OrderObjective, PipelineProblem
from planner.orders.slot_timing import objective_seconds

WARMUP_SHAPES = [*product((1.0, 1.25, 1.5, 1.75, 2.0), (0, 1, 2)), (inf, 0)]  # a·(p − s) + b micro-batches on stage s
PATIENCE = (0.0, 0.25, 0.5, 1.0)
MAX_SLOTS = 1_500_000  # slots placed, after which no smaller memory is tried
SHAPES_REFINED = 2  # warm-up shapes that are tried with every other parameter


class ConstructedOrder(NamedTuple):
    """An order and its seconds; `orders_tried`: orders constructed and timed so far."""

    seconds: float
    order: Order
    orders_tried: int = 0
    rule: PriorityRule | None = None  # None: the order was given
    pipeline: PipelineProblem | None = None  # the pipeline, with the memory limit under which the rule built it


def construct(
    pipeline: PipelineProblem, objective: OrderObjective, lower_bound: float, known: Iterable[Order] = ()
) -> ConstructedOrder:
    """The best order of all rules and of the known ones, which have to fit. Stops at the lower bound."""
    best, tried, slots = ConstructedOrder(inf, ()), 0, 3 * pipeline.stages * pipeline.micro_batches
    for order in known:
        best, tried = quicker(best, ConstructedOrder(objective_seconds(pipeline, order, objective), order)), tried + 1
    for limited in memory_levels(pipeline):
        if best.seconds <= lower_bound * (1 + OPTIMAL_WITHIN) or tried * slots > MAX_SLOTS:
            break
        made = best_by_rules(limited, objective, lower_bound)
        best, tried = quicker(best, made), tried + made.orders_tried
    return best._replace(orders_tried=tried)


def quicker(one: ConstructedOrder, other: ConstructedOrder) -> ConstructedOrder:
    """The quicker of two orders; the first where they are equal."""
    return other if other.seconds < one.seconds else one


def memory_levels(pipeline: PipelineProblem) -> Iterator[PipelineProblem]:
    """The pipeline with less and less memory: for every whole number of micro-batches up to 2p, and doublings of it."""
    yield pipeline
    capacity, twice = min(pipeline.micro_batch_capacity, pipeline.micro_batches), 2 * pipeline.stages
    capacities = [*range(1, min(capacity, twice) + 1)]
    while capacities[-1] * 2 <= capacity and capacities[-1] >= twice:
        capacities.append(capacities[-1] * 2)
    yield from (pipeline.with_capacity_for(size) for size in reversed(capacities))


def best_by_rules(pipeline: PipelineProblem, objective: OrderObjective, lower_bound: float) -> ConstructedOrder:
    """The best order by rules: first over warm-up shapes, then over the other parameters for the few best shapes."""
    best, tried, shapes = ConstructedOrder(inf, ()), 0, list[tuple[float, int]]()
    for place, shape in enumerate(WARMUP_SHAPES):
        for patience in (0.0, 0.5):
            constructed = order_by_rule(pipeline, objective, make_rule(pipeline, shape, patience, patience, False))
            best, tried = quicker(best, constructed), tried + 1
            shapes.append((constructed.seconds, place))
            if best.seconds <= lower_bound * (1 + OPTIMAL_WITHIN):
                return best._replace(orders_tried=tried)
    for place in [*dict.fromkeys(place for _, place in sorted(shapes))][:SHAPES_REFINED]:
        for patience, at_end, eager in product(PATIENCE, (True, False), (False, True)):
            closing = patience if at_end else 0.0
            constructed = order_by_rule(
                pipeline, objective, make_rule(pipeline, WARMUP_SHAPES[place], patience, closing, eager)
            )
            best, tried = quicker(best, constructed), tried + 1
            if best.seconds <= lower_bound * (1 + OPTIMAL_WITHIN):
                return best._replace(orders_tried=tried)
    return best._replace(orders_tried=tried)


def order_by_rule(pipeline: PipelineProblem, objective: OrderObjective, chosen: PriorityRule) -> ConstructedOrder:
    """The order that a rule builds, timed; infinite seconds where it deadlocks."""
    order = greedy(pipeline, chosen)
    seconds = objective_seconds(pipeline, order, objective) if order else inf
    return ConstructedOrder(seconds, order or (), 0, chosen, pipeline)


def make_rule(
    pipeline: PipelineProblem, shape: tuple[float, int], patience: float, closing: float, eager: bool
) -> PriorityRule:
    """A rule for all stages from a warm-up shape and shared parameters."""
    p, (share, more) = pipeline.stages, shape
    return PriorityRule(
        max_in_flight=tuple(int(min(share * (p - s) + more, pipeline.micro_batches)) for s in range(p)),
        forward_first_below=tuple(p - s if eager else 0 for s in range(p)),
        patience=(patience,) * p,
        final_patience=(closing,) * p,
    )


Number = TypeVar("Number")
TUNED_PATIENCE = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.5, 3.0)
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
        return rule._replace(patience=replace_at(rule.patience, stage, pick(TUNED_PATIENCE, draws[2])))
    return rule._replace(final_patience=replace_at(rule.final_patience, stage, pick(TUNED_PATIENCE, draws[2])))


def replace_at(values: tuple[Number, ...], index: int, value: Number) -> tuple[Number, ...]:
    """The values with one of them replaced."""
    return (*values[:index], value, *values[index + 1 :])


def pick(values: tuple[Number, ...], draw: float) -> Number:
    """One of the values; `draw` in [0, 1)."""
    return values[int(draw * len(values))]
