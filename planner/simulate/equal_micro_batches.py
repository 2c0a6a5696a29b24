"""Seconds of a pipeline's step whose micro-batches are alike, as most of a search are: its ranks' tasks one rank after
another, as their own order is all that such a step depends on.
"""

from collections.abc import Callable, Container

from planner.plan.plan_file import Plan
from planner.plan.tasks.module_work import module_work
from planner.plan.tasks.rounds import equal_micro_batches
from planner.plan.tasks.step_draft import StepDraft
from planner.plan.tasks.task_table import TaskTable
from planner.simulate.engine import Price, simulated_end


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
