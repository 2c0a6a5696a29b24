"""The passes of a plan's pipelines, replica by replica, as the problem of ordering them; and a bound over every order.

For one module whose pipeline ranks have one chunk of layers each. Where activations are recomputed, backward is not
split: I stands for all of it, and W is empty.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple

from planner.costs import Pricing, step_prices
from planner.orders import PipelineProblem, StageTable, bound_any_sequence
from planner.plan.plan_file import Plan
from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS
from planner.plan.task import Phase, Task
from planner.scoring.plan_memory import PlanMemory

Forwards = list[dict[int, Task]]  # by stage: micro-batch → forward, numbers rising
LOOKED_AT = 8  # replicas that are bounded
Reduction = Callable[[Iterable[float]], float]


class GroupPasses(NamedTuple):
    """The forwards and sends of one group, from which its other tasks follow."""

    forwards: Forwards
    sends: dict[tuple[str, int, int], Task]  # by phase it sends for, first layer of the sender, and micro-batch


class ReplicaPipeline(NamedTuple):
    """The pipeline of one group of ranks."""

    micro_batches: tuple[int, ...]  # micro-batches that it works on
    pipeline: PipelineProblem


def order_bound_seconds(plan: Plan, pricing: Pricing, tasks: Sequence[Task]) -> float:
    """Lower bound in seconds over orders of these passes in any sequence; 0 where the plan has no such pipelines.

    Of many replicas only those that work longest are bounded: what bounds some of them bounds the step.
    """
    passes = passes_by_group(tasks)
    if not is_plain_pipeline(plan, tasks, passes):
        return 0.0
    longest = sorted(passes, key=lambda each: -forward_seconds(pricing, each))[:LOOKED_AT]
    of_each = dict.fromkeys(
        each.pipeline for each in pipelines_of_groups(plan, pricing, tasks, longest, min)
    )  # each once
    return max((bound_any_sequence(each, "step").seconds for each in of_each if has_feasible_order(each)), default=0.0)


def has_feasible_order(pipeline: PipelineProblem) -> bool:
    """Whether any order exists: each stage can hold a micro-batch."""
    return all(max(held) <= cap for held, cap in zip(pipeline.activations, pipeline.capacity, strict=True))


def replica_pipelines(plan: Plan, pricing: Pricing, tasks: Sequence[Task]) -> list[ReplicaPipeline]:
    """The pipeline of each group; empty where the plan has no such pipelines."""
    passes = passes_by_group(tasks)
    return pipelines_of_groups(plan, pricing, tasks, passes, max) if is_plain_pipeline(plan, tasks, passes) else []


def pipelines_of_groups(
    plan: Plan, pricing: Pricing, tasks: Sequence[Task], passes: Sequence[GroupPasses], counted: Reduction
) -> list[ReplicaPipeline]:
    """The pipelines of some groups. `counted`: which of a stage's recomputed bytes are taken off its capacity.

    Some backward starts at the peak of activations, so every order leaves room for the least recomputed bytes (min),
    and an order that leaves room for the most fits (max).
    """
    price = step_prices(pricing, tasks)
    once = [(set(task.ranks), price(task).value) for task in tasks if task.micro_batch is None]
    return [
        ReplicaPipeline(tuple(each.forwards[0]), pipeline_of_group(plan, pricing, each, once, counted))
        for each in passes
    ]


def forward_seconds(pricing: Pricing, passes: GroupPasses) -> float:
    """Seconds of the forwards on the stage where they take longest."""
    return max(sum(pricing.price(task).value for task in of_stage.values()) for of_stage in passes.forwards)


def is_plain_pipeline(plan: Plan, tasks: Sequence[Task], passes: Sequence[GroupPasses]) -> bool:
    """Whether the plan is one module's, with one chunk of layers on each rank, and groups have disjoint ranks."""
    layout, *others = plan.layouts.values()
    if others or not layout.stages or len(layout.stages) != layout.pp:
        return False
    return ranks_disjoint(tasks, passes)


def passes_by_group(tasks: Sequence[Task]) -> list[GroupPasses]:
    """Forwards and sends of every group that has items."""
    stages: dict[str, dict[int, dict[int, Task]]] = {}
    sends: dict[str, dict[tuple[str, int, int], Task]] = {}
    for task in tasks:
        if task.micro_batch is not None and task.items:
            if task.phase == "F":
                stages.setdefault(task.group, {}).setdefault(task.layers[0], {})[task.micro_batch] = task
            elif task.phase == "send":
                sends.setdefault(task.group, {})[task.of, task.layers[0], task.micro_batch] = task
    return [
        GroupPasses([dict(sorted(found[first].items())) for first in sorted(found)], sends.get(group, {}))
        for group, found in stages.items()
    ]


def ranks_disjoint(tasks: Sequence[Task], passes: Sequence[GroupPasses]) -> bool:
    """Whether groups have disjoint ranks, and every micro-batch has a backward."""
    ranks = [rank for each in passes for of_stage in each.forwards for rank in next(iter(of_stage.values())).ranks]
    if len(ranks) != len(set(ranks)) or any(task.share < 1 or task.offload for task in tasks):
        return False
    returned = {(task.group, task.micro_batch) for task in tasks if task.phase in ("B", "W")}
    return all((task.group, number) in returned for each in passes for number, task in each.forwards[0].items())


def pipeline_of_group(
    plan: Plan, pricing: Pricing, passes: GroupPasses, once: Sequence[tuple[set[int], float]], counted: Reduction
) -> PipelineProblem:
    """The pipeline of one group at the plan's prices. `once`: ranks and seconds of tasks after the last passes."""
    split, forwards, plan_memory = splits_backward(plan), passes.forwards, PlanMemory(plan, pricing)

    def seconds(phase: Phase) -> StageTable:
        return tuple(
            tuple(pricing.price(as_phase(task, phase)).value for task in of_stage.values()) for of_stage in forwards
        )

    held = tuple(tuple(plan_memory.forward_bytes(task) for task in of_stage.values()) for of_stage in forwards)
    ranks = [next(iter(of_stage.values())).ranks for of_stage in forwards]
    return PipelineProblem(
        forward=seconds("F"),
        input_grads=seconds("I" if split else "B"),
        weight_grads=seconds("W") if split else tuple((0.0,) * len(of_stage) for of_stage in forwards),
        forward_sends=send_seconds(pricing, passes, "F"),
        backward_sends=send_seconds(pricing, passes, "B"),
        activations=held,
        kept_for_weights=tuple(
            tuple(each * KEPT_FOR_WEIGHTS if split else 0.0 for each in of_stage) for of_stage in held
        ),
        capacity=tuple(
            stage_activation_capacity(plan_memory, of_stage)
            - counted(map(plan_memory.recomputed_bytes, of_stage.values()))
            for of_stage in forwards
        ),
        tail_seconds=tuple(sum(took for whose, took in once if not whose.isdisjoint(each)) for each in ranks),
    )


def splits_backward(plan: Plan) -> bool:
    """Whether a backward may be split in two: where activations are kept, not recomputed."""
    ((module, layout),) = plan.layouts.items()
    return set(layout.recompute_counts(range(plan.uses.models[module].layers))) == {"none"}


def as_phase(task: Task, phase: Phase) -> Task:
    """The forward, or the task of another phase on the same items."""
    return task if phase == "F" else task.changed(phase=phase)


def stage_activation_capacity(plan_memory: PlanMemory, forwards: dict[int, Task]) -> float:
    """Bytes for activations on each of a stage's ranks; infinite where the job limits tokens instead."""
    if plan_memory.plan.uses.limits.tokens_per_rank is not None:
        return inf
    return min(
        plan_memory.allowed_bytes(rank) - plan_memory.static_bytes(rank) for rank in next(iter(forwards.values())).ranks
    )


def send_seconds(pricing: Pricing, passes: GroupPasses, of: Phase) -> StageTable:
    """Seconds of the sends between neighbouring stages, (stages − 1, micro_batches)."""
    firsts = [next(iter(of_stage.values())).layers[0] for of_stage in passes.forwards]
    found = {key: pricing.price(task).value for key, task in passes.sends.items() if key[0] == of}
    senders = firsts[:-1] if of == "F" else firsts[1:]
    return tuple(tuple(found.get((of, first, number), 0.0) for number in passes.forwards[0]) for first in senders)
