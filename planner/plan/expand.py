"""Decisions into tasks: the one place that knows what a plan means, read by simulator and runtime alike.

The tasks of modules that feed nobody follow their own schedules and are merged into one order, at whose end are the
reductions that are due once a step, and the updates. Those of modules that feed others are then put where the plan
places them, or right before what needs them: from the end of a chain to its beginning, each among those that read it.
"""

from collections.abc import Container, Mapping, Sequence

from planner.errors import InputError
from planner.plan.encoders import add_encoder
from planner.plan.meets import meeting
from planner.plan.merge import merge, settled
from planner.plan.model import Plan, Step
from planner.plan.places import WHERE, Placements, adding, check_named
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.plan.work import Work, cell_task, collective, module_work, stage_tasks
from planner.specs.base import changed

Final = Mapping[
    tuple[int, int], Phase
]  # by micro-batch and chunk, the pass that completes its gradients; no other than B


def expand(plan: Plan, number: int = 0, others: Container[int] = ()) -> tuple[Task, ...]:
    """All tasks of one step, in an order that every rank follows; but those of groups on `others` (plan/alike.py).

    Raises InputError when tasks wait in a circle, or a placement names none.
    """
    step = plan.steps[number]
    try:
        return tuple(step_tasks(plan, step, others))
    except InputError as error:
        raise first_wrong(plan, step, others) or error from None


def first_wrong(plan: Plan, step: Step, others: Container[int]) -> InputError | None:
    """The error of the first placement with which, and with those before it, there is no order."""
    for number in range(-1, len(step.places)):
        try:
            step_tasks(plan, changed(step, order={**step.order, "place": step.places[: number + 1]}), others)
        except InputError as error:
            return InputError(error.message, where=f"{WHERE}[{number}]", fix=error.fix) if number >= 0 else None
    return None


def step_tasks(plan: Plan, step: Step, others: Container[int]) -> list[Task]:
    works = {module: module_work(plan, step, module, others) for module in plan.layouts}
    feeding = {edge.source for edge in plan.edges}
    slots = {name: work.slots(step.order_of(name)) for name, work in works.items() if name not in feeding}
    order = merge([lane for name, of_ranks in slots.items() for lane in stage_tasks(works[name], of_ranks)])
    for name, work in works.items():
        order += closing_tasks(work, final_passes(slots[name]) if name in slots else placed_passes(step, work))
    for module in adding(plan, step):
        order = add_encoder(plan, step, works[module], works, order)
    if not plan.edges:
        return order
    check_named(step, works, order)
    return settled(order, meeting(plan))


def closing_tasks(work: Work, finals: Sequence[Final | None]) -> list[Task]:
    """Once a step: reduce the gradients that no micro-batch reduced, update, gather what the update sharded.

    `finals`: of each pipeline rank; None: nothing follows forwards that never come back.
    """
    tasks: list[Task] = []
    for place, last in enumerate(finals):
        if last is None:
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


def final_passes(slots: Sequence[Sequence[Slot]]) -> list[Final | None]:
    """Of a module in an order of its own."""
    finals = [{(row, chunk): phase for phase, row, chunk in of_rank if phase in ("B", "W")} for of_rank in slots]
    return [last or (None if of_rank else {}) for last, of_rank in zip(finals, slots, strict=True)]


def placed_passes(step: Step, work: Work) -> list[Final | None]:
    """Of a module that feeds others."""
    in_two, pipeline = Placements(step, work).in_two.items(), work.pipeline
    return [
        {(row, stage // pipeline): phase for (row, stage), phase in in_two if stage % pipeline == place}
        for place in range(pipeline)
    ]


def backward_ids(work: Work, place: int, last: Final) -> list[str]:
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
