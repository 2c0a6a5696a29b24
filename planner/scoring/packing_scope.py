"""Which steps the bounds over all packings apply to: those that strategies could have chosen, as they price them.

A plan written by hand can do more: split a group in another way, let it span several kinds of ranks, share a device,
offload what fits, or defer or omit a micro-batch's backward. Such a step can be shorter than any packing, and only its
busiest rank bounds it.
"""

from collections.abc import Sequence

from planner.costs import PackingProblem, rank_pools, split_degree
from planner.plan.plan_file import Plan, Step, assignments
from planner.plan.schedules import FORWARD_ONLY
from planner.plan.task import Task
from planner.specs.sequence_sharding import SequenceSplit


def standard_groups(plan: Plan, number: int, name: str) -> bool:
    """Whether every group of a module in a step is whole ranks of one pool for all layers, split as strategies split
    it.
    """
    layout = plan.layouts[name]
    found = rank_pools(plan.uses.cluster, layout.ranks)
    used = {
        (a.group, a.layers, a.share)
        for micro_batch in plan.steps[number].micro_batches
        for a in assignments(plan, micro_batch)
        if a.module == name
    }
    for named, layers, share in used:
        group = plan.groups[named]
        within = any(pool.first <= min(group.ranks) and max(group.ranks) < pool.first + pool.ranks for pool in found)
        parts = group.resolved_split(layout)
        whole = layers is None and share == 1 and len(group.ranks) == parts.degree
        if not (within and whole and parts == SequenceSplit(**split_degree(plan.uses.models[name], parts.degree))):
            return False
    return True


def standard_order(plan: Plan, step: Step, module: str) -> bool:
    """Whether micro-batches are trained, and one after the other where ranks synchronise in each."""
    order = plan.order_of(step, module)
    return order in (None, "1f1b") or (step.sync == "step" and order != FORWARD_ONLY)


def undivided_items(tasks: Sequence[Task]) -> bool:
    """Whether every item is one sequence for attention: one of several parts costs less."""
    return not any(task.parts for task in tasks)


def standard_offload(problem: PackingProblem, tasks: Sequence[Task]) -> bool:
    """Whether only items that no rank could hold without it are offloaded."""
    return not any(
        ratio and problem.least_tokens(size) == size
        for task in tasks
        for size, ratio in zip(task.sizes, task.offload, strict=False)
    )
