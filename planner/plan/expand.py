"""Expands a plan into tasks: the one place that defines what a plan means, for simulator and runtime alike.

Tasks of modules that feed no other follow their own schedules and are merged into one order, which ends with the
reductions that run once a step, and the updates. Tasks of encoders are then inserted where the plan places them, or
directly before their readers: each encoder after all modules that it feeds.
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

FinalPasses = Mapping[
    tuple[int, int], Phase
]  # micro-batch, chunk → the pass that completes its gradients; where missing: B


def expand(plan: Plan, number: int = 0, others: Container[int] = ()) -> tuple[Task, ...]:
    """Return all tasks of one step, in an order that every rank follows, without those of groups on the ranks `others`,
    which are identical to other groups (plan/mesh/identical_groups.py).

    Raises InputError when dependencies are cyclic, or a placement names no task.
    """
    step = plan.steps[number]
    try:
        return tuple(step_tasks(plan, step, others))
    except InputError as error:
        raise first_placement_error(plan, step, others) or error from None


def first_placement_error(plan: Plan, step: Step, others: Container[int]) -> InputError | None:
    """Return the error of the first placement that, together with those before it, allows no order."""
    for number in range(-1, len(step.places)):
        try:
            step_tasks(plan, changed(step, order={**step.order, "place": step.places[: number + 1]}), others)
        except InputError as error:
            return InputError(error.message, where=f"{WHERE}[{number}]", fix=error.fix) if number >= 0 else None
    return None


def step_tasks(plan: Plan, step: Step, others: Container[int]) -> list[Task]:
    """Return the tasks of a step in order. Raises InputError, whose place does not say which placement is wrong."""
    works = {module: module_work(plan, step, module, others) for module in plan.layouts}
    feeding = {edge.source for edge in plan.edges}
    slots = {name: work.slots(step.order_of(name)) for name, work in works.items() if name not in feeding}
    order = merge([rank_tasks for name, of_ranks in slots.items() for rank_tasks in stage_tasks(works[name], of_ranks)])
    for name, work in works.items():
        order += closing_tasks(work, final_passes(slots[name]) if name in slots else placed_passes(step, work))
    for module in adding(plan, step):
        order = add_encoder(plan, step, works[module], works, order)
    if not plan.edges:
        return order
    check_named(step, works, order)
    return settled(order, meeting(plan))


def closing_tasks(work: Work, finals: Sequence[FinalPasses | None]) -> list[Task]:
    """Return what runs once a step: reduction of gradients that no micro-batch reduced, update, all-gather of weights
    that the update sharded.

    `finals`: by pipeline rank; None: it has forwards only, and nothing to update.
    """
    tasks: list[Task] = []
    for pipeline_rank, last in enumerate(finals):
        if last is None:
            continue
        replicated = work.reduced and work.layout.zero < 3
        update = collective(work, pipeline_rank, "update", None)
        if replicated:
            tasks.append(
                collective(work, pipeline_rank, "sync", None).waiting_for(*backward_ids(work, pipeline_rank, last))
            )
            update = update.waiting_for(tasks[-1].id)
        else:
            update = update.waiting_for(*backward_ids(work, pipeline_rank, last), *sync_ids(work, pipeline_rank))
        tasks.append(update)
        if replicated and work.layout.zero:
            tasks.append(collective(work, pipeline_rank, "gather", None).waiting_for(update.id))
    return tasks


def final_passes(slots: Sequence[Sequence[Slot]]) -> list[FinalPasses | None]:
    """Return, by pipeline rank, the passes that complete the gradients of a module with a schedule."""
    finals = [
        {(micro_batch, chunk): phase for phase, micro_batch, chunk in of_rank if phase in ("B", "W")}
        for of_rank in slots
    ]
    return [last or (None if of_rank else {}) for last, of_rank in zip(finals, slots, strict=True)]


def placed_passes(step: Step, work: Work) -> list[FinalPasses | None]:
    """Return, by pipeline rank, the passes that complete the gradients of an encoder."""
    split_backwards, pipeline = Placements(step, work).in_two.items(), work.pipeline
    return [
        {
            (micro_batch, stage // pipeline): phase
            for (micro_batch, stage), phase in split_backwards
            if stage % pipeline == pipeline_rank
        }
        for pipeline_rank in range(pipeline)
    ]


def backward_ids(work: Work, pipeline_rank: int, last: FinalPasses) -> list[str]:
    """Return the ids of the passes that complete the gradients of a pipeline rank."""
    chunks = [*enumerate(range(pipeline_rank, len(work.stages), work.pipeline))]
    return [
        task.id
        for micro_batch in work.rows
        for c in micro_batch
        for chunk, stage in chunks
        if (task := cell_task(work, stage, last.get((c.row, chunk), "B"), c)).ranks
    ]


def sync_ids(work: Work, pipeline_rank: int) -> list[str]:
    """Return the ids of the reductions of each micro-batch on a pipeline rank; none below ZeRO-3."""
    if work.layout.zero < 3:
        return []
    chunks = range(pipeline_rank, len(work.stages), work.pipeline)
    return [
        collective(work, chunk, "sync", number).id
        for number, micro_batch in enumerate(work.rows)
        if micro_batch
        for chunk in chunks
    ]
