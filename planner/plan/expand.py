"""Decisions into tasks: the one place that knows what a plan means, read by simulator and runtime alike.

The tasks of modules that feed nobody follow their own schedules and are merged into one order; those of encoders are
then put where the plan places them, or right before what needs them. The step ends with the reductions that are
still due, and the update.
"""

from planner.plan.encoders import add_encoder, check_places
from planner.plan.merge import merge, settled
from planner.plan.model import Plan, Step
from planner.plan.task import Task
from planner.plan.work import Work, cell_task, collective, module_work, stage_tasks, usual_schedule


def expand(plan: Plan, number: int = 0) -> tuple[Task, ...]:
    """All tasks of one step, in an order that every rank follows. Raises InputError when tasks wait in a circle, or
    a placement names none.
    """
    step = plan.steps[number]
    works = {module: module_work(plan, step, module) for module in plan.layouts}
    feeding = {edge.source for edge in plan.edges}
    lanes = []
    for module, work in works.items():
        if module not in feeding:
            generator = step.order.get(module)
            lanes += stage_tasks(work, generator if isinstance(generator, str) else usual_schedule(work))
    order = merge(lanes)
    for edge in plan.edges:
        order = add_encoder(plan, step, edge, works, order)
    if plan.edges:
        check_places(plan, step, order)
        order = settled(order)
    return tuple(order + [task for work in works.values() for task in closing_tasks(work, step)])


def closing_tasks(work: Work, step: Step) -> list[Task]:
    """Once a step: reduce the gradients that no micro-batch reduced, update, gather what the update sharded."""
    tasks: list[Task] = []
    for stage in range(work.pipeline):
        replicated = work.layout.mesh.get("dp", 1) > 1 and work.layout.zero < 3
        update = collective(work, stage, "update", None)
        if replicated:
            tasks.append(collective(work, stage, "sync", None).waiting_for(*backward_ids(work, stage)))
            update = update.waiting_for(tasks[-1].id)
        else:
            update = update.waiting_for(*backward_ids(work, stage), *sync_ids(work, stage))
        tasks.append(update)
        if replicated and work.layout.zero:
            tasks.append(collective(work, stage, "gather", None).waiting_for(update.id))
    return tasks


def backward_ids(work: Work, place: int) -> list[str]:
    chunks = range(place, len(work.stages), work.pipeline)
    return [
        task.id for row in work.rows for c in row for chunk in chunks if (task := cell_task(work, chunk, "B", c)).ranks
    ]


def sync_ids(work: Work, place: int) -> list[str]:
    if work.layout.zero < 3:
        return []
    chunks = range(place, len(work.stages), work.pipeline)
    return [
        collective(work, chunk, "sync", number).id for number, row in enumerate(work.rows) if row for chunk in chunks
    ]
