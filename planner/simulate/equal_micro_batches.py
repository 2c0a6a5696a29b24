"""Seconds of a pipeline's step whose micro-batches are alike, as most of a search are: its ranks' tasks one rank after
another, as their own order is all that such a step depends on.
"""

from collections.abc import Callable, Container, Hashable

from planner.plan.plan_file import Plan, Step, assignments
from planner.plan.tasks.module_work import module_work
from planner.plan.tasks.step_draft import StepDraft
from planner.plan.tasks.task_table import TaskTable
from planner.simulate.engine import Price, simulated_end
from planner.specs.workload.items import part_lengths


def equal_step_seconds(
    plan: Plan, number: int, omitted_ranks: Container[int], price_of: Callable[[TaskTable], Price]
) -> float | None:
    """Seconds of a step; None where its micro-batches differ, or it has no pipeline. `price_of`: of some tasks."""
    step, layouts = plan.steps[number], [*plan.layouts]
    if len(layouts) > 1 or plan.layouts[layouts[0]].pp == 1 or len(step.micro_batches) < 2:
        return None
    if not equal_micro_batches(plan, step):
        return None
    work = module_work(plan, step, layouts[0], omitted_ranks)
    draft, slots = StepDraft([work]), work.slots(plan.order_of(step, layouts[0]))
    (module,) = draft.modules.values()
    passes = [number for own in module.in_slots(slots) for number in own]
    tasks = draft.table([*passes, *module.closings(slots)])
    return simulated_end(tasks, price_of(tasks))


def equal_micro_batches(plan: Plan, step: Step) -> bool:
    """Whether every group has as many items of the same lengths in each micro-batch, and devices of its own."""
    ((module, layout),) = plan.layouts.items()
    sizes = plan.uses.items[module]

    def work(number: int) -> list[tuple[Hashable, ...]]:
        each = assignments(plan, step.micro_batches[number])
        return [
            (a.share, a.group, tuple(part_lengths(sizes[i]) for i in a.items), a.offload_shares(layout)) for a in each
        ]

    first = work(0)
    whole = all(share == 1 for share, *_ in first)
    return whole and all(work(number) == first for number in range(1, len(step.micro_batches)))
