"""The passes of a plan's pipelines, replica by replica, as what their orders are made of; and what bounds every order.

Of one module whose pipeline ranks have one chunk of layers each, and whose micro-batches keep their sequence. Where
activations are made again, backward is not parted: I stands for the whole of it, and W for nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from planner.costs.memory import activation_bytes, memory_cap, state_bytes
from planner.costs.pricing import Pricing
from planner.orders import Pipeline, floor_of
from planner.orders.problem import Rows
from planner.plan.model import Plan
from planner.plan.schedules.held import FOR_WEIGHTS
from planner.plan.task import Phase, Task
from planner.specs.cluster import kind_of

Forwards = list[dict[int, Task]]  # of each stage, by micro-batch


class Passes(NamedTuple):
    """What one group does: the rest of its tasks follows from the forwards."""

    forwards: Forwards
    sends: dict[tuple[str, int, int], Task]  # by what it carries, the first layer of the sender, and micro-batch


class Replica(NamedTuple):
    """What one group does."""

    rows: tuple[int, ...]  # the micro-batches that it has
    pipeline: Pipeline


def order_seconds(plan: Plan, pricing: Pricing, tasks: Sequence[Task]) -> float:
    """What no order of these passes can beat; 0 where it is not of such pipelines."""
    replicas = pipelines(plan, pricing, tasks)
    return max((floor_of(each.pipeline, "step").seconds for each in replicas if fitting(each.pipeline)), default=0.0)


def fitting(pipeline: Pipeline) -> bool:
    """Whether there is any order: each stage holds a micro-batch."""
    return all(max(held) <= cap for held, cap in zip(pipeline.held, pipeline.cap, strict=True))


def pipelines(plan: Plan, pricing: Pricing, tasks: Sequence[Task]) -> list[Replica]:
    """One of each group; none where the plan or its order are of another kind."""
    (layout, *others), passes = plan.layouts.values(), by_group(tasks)
    if others or not layout.stages or len(layout.stages) != layout.mesh.get("pp", 1) or not simple(tasks, passes):
        return []
    once = [(set(task.ranks), pricing.price(task).value) for task in tasks if task.micro_batch is None]
    return [Replica(tuple(each.forwards[0]), pipeline(plan, pricing, each, once)) for each in passes]


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
    return [Passes([found[first] for first in sorted(found)], sends.get(group, {})) for group, found in stages.items()]


def simple(tasks: Sequence[Task], passes: Sequence[Passes]) -> bool:
    """Whether groups have ranks of their own, and micro-batches come in sequence, and back."""
    ranks = [rank for each in passes for row in each.forwards for rank in next(iter(row.values())).ranks]
    if len(ranks) != len(set(ranks)) or any(task.share < 1 or task.offload for task in tasks):
        return False
    latest: dict[tuple[str, Phase, int], int] = {}
    returned = set()
    for task in tasks:
        if task.phase in ("F", "B", "I", "W") and task.items and task.micro_batch is not None:
            key = task.group, task.phase, task.layers[0]
            if latest.get(key, -1) > task.micro_batch:
                return False
            latest[key] = task.micro_batch
            if task.phase in ("B", "W"):
                returned.add((task.group, task.micro_batch))
    return all((task.group, row) in returned for each in passes for row, task in each.forwards[0].items())


def pipeline(plan: Plan, pricing: Pricing, passes: Passes, once: Sequence[tuple[set[int], float]]) -> Pipeline:
    """One group's, at the plan's prices. `once`: ranks and seconds of what follows the last passes."""
    parted, forwards = parts(plan), passes.forwards

    def seconds(phase: Phase) -> Rows:
        return tuple(tuple(pricing.price(as_phase(task, phase)).value for task in row.values()) for row in forwards)

    held = tuple(tuple(activations(plan, pricing, task) for task in row.values()) for row in forwards)
    ranks = [next(iter(row.values())).ranks for row in forwards]
    return Pipeline(
        forward=seconds("F"),
        inputs=seconds("I" if parted else "B"),
        weights=seconds("W") if parted else tuple((0.0,) * len(row) for row in forwards),
        ahead=sent(pricing, passes, "F"),
        back=sent(pricing, passes, "B"),
        held=held,
        kept=tuple(tuple(each * FOR_WEIGHTS if parted else 0.0 for each in row) for row in held),
        cap=tuple(room(plan, stage, row) for stage, row in enumerate(forwards)),
        after=tuple(sum(took for whose, took in once if not whose.isdisjoint(each)) for each in ranks),
    )


def parts(plan: Plan) -> bool:
    """Whether a backward may be in two: where activations are kept, not made again."""
    (layout,) = plan.layouts.values()
    return layout.recompute == "none"


def as_phase(task: Task, phase: Phase) -> Task:
    return task if phase == "F" else replace(task, phase=phase)


def activations(plan: Plan, pricing: Pricing, task: Task) -> float:
    """Bytes that a forward leaves on each of its ranks."""
    ways = task.degree * plan.layouts[task.module].mesh.get("tp", 1)
    last = task.layers[-1] == plan.uses.models[task.module].layers - 1
    of_kinds = [pricing.costs(task.module, kind) for kind in pricing.kinds(task.ranks)]
    return max(activation_bytes(costs, len(task.layers), last, task.tokens * costs.tp / ways) for costs in of_kinds)


def room(plan: Plan, stage: int, row: dict[int, Task]) -> float:
    """Bytes for activations on each of a stage's ranks. The job's own limit in tokens replaces the count."""
    task, uses = next(iter(row.values())), plan.uses
    if uses.limits.tokens_per_rank is not None:
        return inf
    module, layout = uses.models[task.module], plan.layouts[task.module]
    kinds = {kind_of(uses.cluster, rank) for rank in task.ranks}
    least = min(memory_cap(uses.devices[kind], uses.limits) for kind in kinds)
    return least - int(state_bytes(module, layout, uses.prices.accounting, stage))


def sent(pricing: Pricing, passes: Passes, of: Phase) -> Rows:
    """Seconds of the sends between neighbours, each under its earlier stage."""
    firsts = [next(iter(row.values())).layers[0] for row in passes.forwards]
    found = {key: pricing.price(task).value for key, task in passes.sends.items() if key[0] == of}
    senders = firsts[:-1] if of == "F" else firsts[1:]
    return tuple(tuple(found.get((of, first, row), 0.0) for row in passes.forwards[0]) for first in senders)
