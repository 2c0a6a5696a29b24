"""Decisions into tasks: the one place that knows what a plan means, read by simulator and runtime alike.

The tasks of modules that feed nobody follow their own schedules and are merged into one order; those of encoders are
then put where the plan places them, or right before what needs them. The step ends with the reductions that are
still due, and the update.
"""

from collections.abc import Container, Sequence

from planner.plan.encoders import add_encoder, check_places
from planner.plan.merge import merge, settled
from planner.plan.model import Plan
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.plan.work import Work, cell_task, collective, module_work, stage_tasks


def expand(plan: Plan, number: int = 0, others: Container[int] = ()) -> tuple[Task, ...]:
    """All tasks of one step, in an order that every rank follows; but those of groups on `others` (plan/alike.py).

    Raises InputError when tasks wait in a circle, or a placement names none.
    """
    step = plan.steps[number]
    works = {module: module_work(plan, step, module, others) for module in plan.layouts}
    feeding = {edge.source for edge in plan.edges}
    slots = {name: work.slots(step.order_of(name)) for name, work in works.items() if name not in feeding}
    order = merge([lane for name, of_ranks in slots.items() for lane in stage_tasks(works[name], of_ranks)])
    for edge in plan.edges:
        order = add_encoder(plan, step, edge, works, order)
    if plan.edges:
        check_places(plan, step, order)
        order = settled(order)
    return tuple(order + [task for name, work in works.items() for task in closing_tasks(work, slots.get(name))])


def closing_tasks(work: Work, slots: Sequence[Sequence[Slot]] | None) -> list[Task]:
    """Once a step: reduce the gradients that no micro-batch reduced, update, gather what the update sharded.

    `slots`: of each pipeline rank; None: backward is whole. Nothing follows forwards that never come back.
    """
    tasks: list[Task] = []
    for place in range(work.pipeline):
        last = final_passes(slots[place]) if slots else {}
        if slots and slots[place] and not last:
            continue
        replicated = work.reduced and work.layout.zero < 3
        update = collective(work, place, "update", None)
        if replicated:
            tasks.append(collective(work, place, "sync", None).waiting_for(*backward_ids(work, place, last)))
            update = update.waiting_for(tasks[-1].id)
        else:
            update = update.waiting_for(*backward_ids(work, place, last), *sync_ids(work, place))
        tasks.append(update)
        if replicated and work.layout.zero:
            tasks.append(collective(work, place, "gather", None).waiting_for(update.id))
    return tasks


def final_passes(slots: Sequence[Slot]) -> dict[tuple[int, int], Phase]:
    """By micro-batch and chunk, the pass that completes its gradients."""
    return {(row, chunk): phase for phase, row, chunk in slots if phase in ("B", "W")}


def backward_ids(work: Work, place: int, last: dict[tuple[int, int], Phase]) -> list[str]:
    """The passes that complete the gradients of a pipeline rank."""
    chunks = [*enumerate(range(place, len(work.stages), work.pipeline))]
    return [
        task.id
        for row in work.rows
        for c in row
        for chunk, stage in chunks
        if (task := cell_task(work, stage, last.get((c.row, chunk), "B"), c)).ranks
    ]


def sync_ids(work: Work, place: int) -> list[str]:
    if work.layout.zero < 3:
        return []
    chunks = range(place, len(work.stages), work.pipeline)
    return [
        collective(work, chunk, "sync", number).id for number, row in enumerate(work.rows) if row for chunk in chunks
    ]
