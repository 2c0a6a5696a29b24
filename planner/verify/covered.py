"""Which steps the bounds over all packings are for: those made of what strategies choose from, as it is priced there.

A plan written by hand can do more: split a group in another way, let it reach across kinds of ranks, share a device,
offload what fits, or leave a micro-batch's backward for later, or out. Such a step can be shorter than any packing, and
only the busiest of its ranks bounds it.
"""

from collections.abc import Sequence

from planner.costs.step.sequences import Sequences, pools, split
from planner.plan.model import Plan, Split, Step, assignments
from planner.plan.schedules import FORWARD_ONLY
from planner.plan.task import Task


def usual_groups(plan: Plan, number: int) -> bool:
    """Whether every group of a step is whole ranks of one pool for all layers, split as a strategy would."""
    ((name, layout),) = plan.layouts.items()
    found = pools(plan.uses.cluster, layout.ranks)
    used = {(a.group, a.layers, a.share) for row in plan.steps[number].micro_batches for a in assignments(plan, row)}
    for named, layers, share in used:
        group = plan.groups[named]
        within = any(pool.first <= min(group.ranks) and max(group.ranks) < pool.first + pool.ranks for pool in found)
        parts = group.split_in(layout)
        whole = layers is None and share == 1 and len(group.ranks) == parts.degree
        if not (within and whole and parts == Split(**split(plan.uses.models[name], parts.degree))):
            return False
    return True


def usual_order(plan: Plan, step: Step, module: str) -> bool:
    """Whether micro-batches are trained, and one after the other where ranks meet in each."""
    order = plan.order_of(step, module)
    return order in (None, "1f1b") or (step.sync == "step" and order != FORWARD_ONLY)


def whole_items(tasks: Sequence[Task]) -> bool:
    """Whether attention sees all of an item: one of several parts costs less than a sequence of its tokens."""
    return not any(task.parts for task in tasks)


def usual_offload(problem: Sequences, tasks: Sequence[Task]) -> bool:
    """Whether nothing is offloaded but of what no rank holds alone."""
    return not any(
        ratio and problem.least_tokens(size) == size
        for task in tasks
        for size, ratio in zip(task.sizes, task.offload, strict=False)
    )
