"""Expands a plan into tasks: the one place that defines what a plan means, for simulator and runtime alike.

Tasks of modules that feed no other follow their own schedules and are merged into one order, which ends with the
reductions that run once a step, and the updates. Tasks of encoders are then inserted where the plan places them, or
where their readers need them, as early and as late as their layouts say: each encoder after all modules that it feeds.
"""

from collections.abc import Container, Mapping, Sequence

from planner.errors import InputError
from planner.plan.mesh.synchronisation import synchronised_phases
from planner.plan.plan_file import Plan, Step
from planner.plan.tasks.encoder_tasks import insert_encoder_tasks
from planner.plan.tasks.merge_orders import topological_order
from planner.plan.tasks.module_tasks import CODES, GATHER, SYNC, UPDATE
from planner.plan.tasks.module_work import module_work
from planner.plan.tasks.placements import PLACE_KEY, check_placements, encoder_insertion_order
from planner.plan.tasks.readers_order import LastReaders, Slots, merged_tasks
from planner.plan.tasks.step_draft import StepDraft
from planner.plan.tasks.task_losses import order_with_losses
from planner.plan.tasks.task_table import TaskTable
from planner.specs.base import with_fields

LAST_READERS = LastReaders()


def expand(plan: Plan, number: int = 0, omitted_ranks: Container[int] = ()) -> TaskTable:
    """Return all tasks of one step, in an order that every rank follows, without those of groups on `omitted_ranks`,
    which are identical to other groups (plan/mesh/identical_groups.py).

    Raises InputError when dependencies are cyclic, or a placement names no task.
    """
    step = plan.steps[number]
    try:
        return step_tasks(plan, step, omitted_ranks)
    except InputError as error:
        raise first_placement_error(plan, step, omitted_ranks) or error from None


def first_placement_error(plan: Plan, step: Step, omitted_ranks: Container[int]) -> InputError | None:
    """Return the error of the first placement that, together with those before it, allows no order."""
    for number in range(-1, len(step.placed)):
        try:
            step_tasks(plan, with_fields(step, order={**step.order, "place": step.placed[: number + 1]}), omitted_ranks)
        except InputError as error:
            return InputError(error.message, where=f"{PLACE_KEY}[{number}]", fix=error.fix) if number >= 0 else None
    return None


def step_tasks(plan: Plan, step: Step, omitted_ranks: Container[int]) -> TaskTable:
    """Return the tasks of a step in order. Raises InputError, whose place does not say which placement is wrong."""
    feeding, synchronised = {edge.source for edge in plan.edges}, synchronised_phases(plan)
    works = [module_work(plan, step, name, omitted_ranks) for name in sorted(plan.layouts, key=feeding.__contains__)]
    draft = StepDraft(works)
    own = [work.module for work in works if work.module not in feeding]
    if not plan.edges:
        slots = {work.module: work.slots(step.order_of(work.module)) for work in works}
        losses = plan.uses.tasks
        numbers = order_with_losses(draft, slots, losses, synchronised) if losses else merged_tasks(draft, slots)
        last = closings(draft, slots)
        return draft.table([*numbers.tolist(), *(phase_by_phase(last) if losses else last)])
    readers = LAST_READERS.order_of(draft, own, step, synchronised)
    order = [*readers.numbers.tolist(), *closings(draft, readers.slots)]
    for name in encoder_insertion_order(plan, step):
        order = insert_encoder_tasks(plan, step, draft.modules[name], draft, order, readers.times)
    tasks = draft.table(order)
    check_placements(step, {work.module: work for work in works}, tasks)
    return tasks.reordered(topological_order(tasks, synchronised))


def phase_by_phase(numbers: Sequence[int]) -> list[int]:
    """Return what runs once a step of modules that share ranks: all reductions, then all updates, then all gathers, so
    that no module's reduction waits for another's update.
    """
    return sorted(numbers, key=lambda number: (SYNC, UPDATE, GATHER).index(number % len(CODES)))


def closings(draft: StepDraft, slots: Mapping[str, Slots]) -> list[int]:
    """Return what runs once a step of all modules, those without slots of their own, encoders, last."""
    return [number for name, module in draft.modules.items() for number in module.closings(slots.get(name))]
