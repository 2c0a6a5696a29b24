"""What ranks hold and may hold by the memory model: activations of a forward, states, and the cap."""

from collections import Counter
from collections.abc import Callable

from planner.costs.memory import activation_bytes, lasting_bytes, memory_cap, state_bytes, updating_bytes
from planner.costs.pricing import Pricing
from planner.orders.timing import ROUNDING
from planner.plan.mesh import stage_ranks
from planner.plan.model import Layout, Plan
from planner.plan.task import Task
from planner.specs.accounting import Accounting
from planner.specs.cluster import kind_of
from planner.specs.model import Module
from planner.verify.offloaded import offloading_of


def activations(plan: Plan, pricing: Pricing) -> Callable[[Task], float]:
    """Bytes that a forward leaves on each of its ranks; what is offloaded has left it."""

    def held(task: Task) -> float:
        ways = task.degree * plan.layouts[task.module].mesh.get("tp", 1)
        if task.offload:
            rank = offloading_of(plan, pricing, task)
            return (
                sum(size * rank.held_bytes(ratio) for size, ratio in zip(task.sizes, task.offload, strict=True)) / ways
            )
        of_kinds = [pricing.layer_costs(task.module, kind, task.layers) for kind in pricing.kinds(task.ranks)]
        last = task.layers[-1] == plan.uses.models[task.module].layers - 1
        return max(activation_bytes(costs, len(task.layers), last, task.tokens * costs.tp / ways) for costs in of_kinds)

    return held


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
