"""What ranks hold and may hold by the memory model: activations of a forward and of a backward, states, and the cap."""

from collections import Counter
from collections.abc import Callable

from planner.costs.memory import activation_bytes, lasting_bytes, memory_cap, remade_bytes, state_bytes, updating_bytes
from planner.costs.pricing import Pricing
from planner.orders.timing import ROUNDING
from planner.plan.mesh import stage_ranks
from planner.plan.model import Layout, Plan
from planner.plan.task import Task
from planner.specs.accounting import Accounting
from planner.specs.cluster import kind_of
from planner.specs.model import Module
from planner.specs.profile import ModuleCosts
from planner.verify.offloaded import offloading_of


def activations(plan: Plan, pricing: Pricing) -> Callable[[Task], float]:
    """Bytes that a forward leaves on each of its ranks; what is offloaded has left it."""

    def held(task: Task) -> float:
        if task.offload:
            rank, ways = offloading_of(plan, pricing, task), ways_of(plan, task)
            return (
                sum(size * rank.held_bytes(ratio) for size, ratio in zip(task.sizes, task.offload, strict=True)) / ways
            )
        last = has_ends(plan, task)
        return max(activation_bytes(c, len(task.layers), last, tokens) for c, tokens in by_kind(plan, pricing, task))

    return held


def remade(plan: Plan, pricing: Pricing) -> Callable[[Task], float]:
    """Bytes that a backward holds on each of its ranks beside what forwards left, while it makes a layer again."""

    def besides(task: Task) -> float:
        last = has_ends(plan, task)
        return max(remade_bytes(costs, last, tokens) for costs, tokens in by_kind(plan, pricing, task))

    return besides


def by_kind(plan: Plan, pricing: Pricing, task: Task) -> list[tuple[ModuleCosts, float]]:
    """On each kind of a task's ranks: what its layers cost, and how many tokens' bytes as these say are on one rank."""
    each = [pricing.layer_costs(task.module, kind, task.layers) for kind in pricing.kinds(task.ranks)]
    return [(costs, task.tokens * costs.tp / ways_of(plan, task)) for costs in each]


def ways_of(plan: Plan, task: Task) -> int:
    """Ranks of a stage that share a task's tokens and matrices."""
    return task.degree * plan.layouts[task.module].mesh.get("tp", 1)


def has_ends(plan: Plan, task: Task) -> bool:
    return task.layers[-1] == plan.uses.models[task.module].layers - 1


def states(plan: Plan) -> Callable[[int], float]:
    """Bytes of weights, gradients and optimizer states on a rank."""
    return by_rank(plan, state_bytes)


def lasting(plan: Plan) -> Callable[[int], float]:
    """Of these, what stays on a rank from step to step."""
    return by_rank(plan, lasting_bytes)


def updating(plan: Plan) -> Callable[[int], float]:
    """Bytes on a rank beside what stays, while the optimizer works."""
    return by_rank(plan, updating_bytes)


def by_rank(plan: Plan, count: Callable[[Module, Layout, Accounting, int], float]) -> Callable[[int], float]:
    """What the stages of all modules have on a rank, where `count` is of one stage."""
    on_rank: Counter[int] = Counter()
    for name, layout in plan.layouts.items():
        for stage in range(layout.mesh.get("pp", 1)):
            held = int(count(plan.uses.models[name], layout, plan.uses.prices.accounting, stage))
            on_rank.update(dict.fromkeys(stage_ranks(layout, stage), held))
    return lambda rank: float(on_rank[rank])


def stage_states(plan: Plan, module: str, stage: int) -> int:
    """The same of one module on each rank of a stage."""
    return int(state_bytes(plan.uses.models[module], plan.layouts[module], plan.uses.prices.accounting, stage))


def cap_of(plan: Plan, rank: int) -> float:
    """Bytes that a rank may hold."""
    return memory_cap(plan.uses.devices[kind_of(plan.uses.cluster, rank)], plan.uses.limits)


def exceeds(held: float, cap: float) -> bool:
    """Beyond how sums are rounded: an order that fits by its own sum fits by the simulator's."""
    return held > cap * (1 + ROUNDING)
