"""The passes of a plan's pipelines, replica by replica, as what their orders are made of; and what bounds every order.

Of one module whose pipeline ranks have one chunk of layers each. Where activations are made again, backward is not
parted: I stands for the whole of it, and W for nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from planner.costs.pricing import Pricing
from planner.orders import Pipeline, floor_of_any
from planner.orders.problem import Rows
from planner.plan.model import Plan
from planner.plan.schedules.held import FOR_WEIGHTS
from planner.plan.task import Phase, Task
from planner.verify.held import Holding

Forwards = list[dict[int, Task]]  # of each stage, by micro-batch, in their numbers' sequence
LOOKED_AT = 8  # replicas
OneOf = Callable[[Iterable[float]], float]


class Passes(NamedTuple):
    """What one group does: the rest of its tasks follows from the forwards."""

    forwards: Forwards
    sends: dict[tuple[str, int, int], Task]  # by what it carries, the first layer of the sender, and micro-batch


class Replica(NamedTuple):
    """What one group does."""

    rows: tuple[int, ...]  # the micro-batches that it has
    pipeline: Pipeline


def order_seconds(plan: Plan, pricing: Pricing, tasks: Sequence[Task]) -> float:
    """What no order of these passes can beat, in whatever sequence; 0 where it is not of such pipelines.

    Of very many replicas only those that work longest are looked at: what bounds some of them bounds the step.
    """
    passes = by_group(tasks)
    if not ordinary(plan, tasks, passes):
        return 0.0
    longest = sorted(passes, key=lambda each: -work(pricing, each))[:LOOKED_AT]
    of_each = dict.fromkeys(each.pipeline for each in replicas_of(plan, pricing, tasks, longest, min))  # each once
    return max((floor_of_any(each, "step").seconds for each in of_each if fitting(each)), default=0.0)


def fitting(pipeline: Pipeline) -> bool:
    """Whether there is any order: each stage holds a micro-batch."""
    return all(max(held) <= cap for held, cap in zip(pipeline.held, pipeline.cap, strict=True))


def pipelines(plan: Plan, pricing: Pricing, tasks: Sequence[Task]) -> list[Replica]:
    """One of each group; none where the plan or its order are of another kind."""
    passes = by_group(tasks)
    return replicas_of(plan, pricing, tasks, passes, max) if ordinary(plan, tasks, passes) else []


def replicas_of(
    plan: Plan, pricing: Pricing, tasks: Sequence[Task], passes: Sequence[Passes], counted: OneOf
) -> list[Replica]:
    """`counted`: of what a stage's backwards make again. Some backward starts where forwards have left most, so each
    order leaves room for the least of them (min), and one that leaves room for the most of them fits (max).
    """
    price = pricing.among(tasks)
    once = [(set(task.ranks), price(task).value) for task in tasks if task.micro_batch is None]
    return [Replica(tuple(each.forwards[0]), pipeline(plan, pricing, each, once, counted)) for each in passes]


def work(pricing: Pricing, passes: Passes) -> float:
    """Seconds of the forwards on the stage that has most of them."""
    return max(sum(pricing.price(task).value for task in row.values()) for row in passes.forwards)


def ordinary(plan: Plan, tasks: Sequence[Task], passes: Sequence[Passes]) -> bool:
    """Whether it is one module's, a chunk of layers on each rank, and groups have ranks of their own."""
    layout, *others = plan.layouts.values()
    if others or not layout.stages or len(layout.stages) != layout.pp:
        return False
    return simple(tasks, passes)


def by_group(tasks: Sequence[Task]) -> list[Passes]:
    """Forwards and sends of every group that works on something."""
    stages: dict[str, dict[int, dict[int, Task]]] = {}
    sends: dict[str, dict[tuple[str, int, int], Task]] = {}
    for task in tasks:
        if task.micro_batch is not None and task.items:
            if task.phase == "F":
                stages.setdefault(task.group, {}).setdefault(task.layers[0], {})[task.micro_batch] = task
            elif task.phase == "send":
                sends.setdefault(task.group, {})[task.of, task.layers[0], task.micro_batch] = task
    return [
        Passes([dict(sorted(found[first].items())) for first in sorted(found)], sends.get(group, {}))
        for group, found in stages.items()
    ]


def simple(tasks: Sequence[Task], passes: Sequence[Passes]) -> bool:
    """Whether groups have ranks of their own, and every micro-batch comes back."""
    ranks = [rank for each in passes for row in each.forwards for rank in next(iter(row.values())).ranks]
    if len(ranks) != len(set(ranks)) or any(task.share < 1 or task.offload for task in tasks):
        return False
    returned = {(task.group, task.micro_batch) for task in tasks if task.phase in ("B", "W")}
    return all((task.group, row) in returned for each in passes for row, task in each.forwards[0].items())


def pipeline(
    plan: Plan, pricing: Pricing, passes: Passes, once: Sequence[tuple[set[int], float]], counted: OneOf
) -> Pipeline:
    """One group's, at the plan's prices. `once`: ranks and seconds of what follows the last passes."""
    parted, forwards, holding = parts(plan), passes.forwards, Holding(plan, pricing)

    def seconds(phase: Phase) -> Rows:
        return tuple(tuple(pricing.price(as_phase(task, phase)).value for task in row.values()) for row in forwards)

    held = tuple(tuple(holding.forward(task) for task in row.values()) for row in forwards)
    ranks = [next(iter(row.values())).ranks for row in forwards]
    return Pipeline(
        forward=seconds("F"),
        inputs=seconds("I" if parted else "B"),
        weights=seconds("W") if parted else tuple((0.0,) * len(row) for row in forwards),
        ahead=sent(pricing, passes, "F"),
        back=sent(pricing, passes, "B"),
        held=held,
        kept=tuple(tuple(each * FOR_WEIGHTS if parted else 0.0 for each in row) for row in held),
        cap=tuple(room(holding, row) - counted(map(holding.besides, row.values())) for row in forwards),
        after=tuple(sum(took for whose, took in once if not whose.isdisjoint(each)) for each in ranks),
    )


def parts(plan: Plan) -> bool:
    """Whether a backward may be in two: where activations are kept, not made again."""
    ((module, layout),) = plan.layouts.items()
    return set(layout.recomputes(range(plan.uses.models[module].layers))) == {"none"}


def as_phase(task: Task, phase: Phase) -> Task:
    return task if phase == "F" else replace(task, phase=phase)


def room(holding: Holding, row: dict[int, Task]) -> float:
    """Bytes for activations on each of a stage's ranks. The job's own limit in tokens replaces the count."""
    if holding.plan.uses.limits.tokens_per_rank is not None:
        return inf
    return min(holding.allowed(rank) - holding.always(rank) for rank in next(iter(row.values())).ranks)


def sent(pricing: Pricing, passes: Passes, of: Phase) -> Rows:
    """Seconds of the sends between neighbours, each under its earlier stage."""
    firsts = [next(iter(row.values())).layers[0] for row in passes.forwards]
    found = {key: pricing.price(task).value for key, task in passes.sends.items() if key[0] == of}
    senders = firsts[:-1] if of == "F" else firsts[1:]
    return tuple(tuple(found.get((of, first, row), 0.0) for row in passes.forwards[0]) for first in senders)
