"""Expands a plan into tasks: the one place that defines what a plan means, for simulator and runtime alike.

Tasks of modules that feed no other follow their own schedules and are merged into one order, which ends with the
reductions that run once a step, and the updates. Tasks of encoders are then inserted where the plan places them, or
where their readers need them, as early and as late as their layouts say: each encoder after all modules that it feeds.

The check of a plan, its score and its run ask for the same expansion, one after another. Of plans of several modules it
takes longer than each of these, so the last one is kept.
"""

from collections.abc import Container, Mapping, Sequence

from planner.errors import InputError
from planner.plan.mesh.synchronisation import reduces_each_micro_batch, synchronised_phases
from planner.plan.plan_file import Plan, Step
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.plan.tasks.encoder_tasks import insert_encoder_tasks
from planner.plan.tasks.merge_orders import topological_order
from planner.plan.tasks.module_work import ModuleWork, collective_task, module_work, pass_task
from planner.plan.tasks.placements import PLACE_KEY, ModulePlacements, check_placements, encoder_insertion_order
from planner.plan.tasks.readers_order import LastReaders, Slots, merged_tasks
from planner.specs.base import with_fields


class LastExpansion:
    """The tasks of one step, and the parts of its plan that they follow from."""

    def __init__(self) -> None:
        self.kept: tuple[Plan, Step, tuple[Task, ...]] | None = None

    def of(self, plan: Plan, step: Step) -> tuple[Task, ...] | None:
        """Return the tasks of this step, where it is the one that was kept: what it works on is the same objects, as
        the order of keys counts, and the rest is equal.
        """
        if self.kept is None:
            return None
        before, step_before, tasks = self.kept
        same = (
            step.micro_batches is step_before.micro_batches
            and step.order is step_before.order
            and plan.uses.items is before.uses.items
            and plan.uses.feeds is before.uses.feeds
        )
        equal = same and all(
            each == other
            for each, other in (
                (plan.groups, before.groups),
                (plan.layouts, before.layouts),
                (plan.edges, before.edges),
                (plan.uses.models, before.uses.models),
            )
        )
        return tasks if equal else None

    def keep(self, plan: Plan, step: Step, tasks: tuple[Task, ...]) -> None:
        """Keep this expansion in place of the one before."""
        self.kept = plan, step, tasks


# Micro-batch, chunk → the pass that completes its gradients; where missing: B
FinalPasses = Mapping[tuple[int, int], Phase]

LAST, LAST_READERS = LastExpansion(), LastReaders()


def expand(plan: Plan, number: int = 0, omitted_ranks: Container[int] = ()) -> tuple[Task, ...]:
    """Return all tasks of one step, in an order that every rank follows, without those of groups on `omitted_ranks`,
    which are identical to other groups (plan/mesh/identical_groups.py).

    Raises InputError when dependencies are cyclic, or a placement names no task.
    """
    step, known = plan.steps[number], None
    if plan.edges and not omitted_ranks:
        known = LAST.of(plan, step)
    try:
        tasks = known or tuple(step_tasks(plan, step, omitted_ranks))
    except InputError as error:
        raise first_placement_error(plan, step, omitted_ranks) or error from None
    if plan.edges and not omitted_ranks:
        LAST.keep(plan, step, tasks)
    return tasks


def first_placement_error(plan: Plan, step: Step, omitted_ranks: Container[int]) -> InputError | None:
    """Return the error of the first placement that, together with those before it, allows no order."""
    for number in range(-1, len(step.placements)):
        try:
            step_tasks(
                plan, with_fields(step, order={**step.order, "place": step.placements[: number + 1]}), omitted_ranks
            )
        except InputError as error:
            return InputError(error.message, where=f"{PLACE_KEY}[{number}]", fix=error.fix) if number >= 0 else None
    return None


def step_tasks(plan: Plan, step: Step, omitted_ranks: Container[int]) -> list[Task]:
    """Return the tasks of a step in order. Raises InputError, whose place does not say which placement is wrong."""
    works = {module: module_work(plan, step, module, omitted_ranks) for module in plan.layouts}
    if not plan.edges:
        slots = {name: work.slots(step.order_of(name)) for name, work in works.items()}
        return merged_tasks(works, slots) + closings(step, works, slots)
    feeding, synchronised = {edge.source for edge in plan.edges}, synchronised_phases(plan)
    own = {name: work for name, work in works.items() if name not in feeding}
    readers = LAST_READERS.order_of(own, step, synchronised)
    works |= readers.works
    order = readers.tasks + closings(step, works, readers.slots)
    for module in encoder_insertion_order(plan, step):
        order = insert_encoder_tasks(plan, step, works[module], works, order, readers.times)
    check_placements(step, works, order)
    return topological_order(order, synchronised)


def closings(step: Step, works: Mapping[str, ModuleWork], slots: Mapping[str, Slots]) -> list[Task]:
    """Return what runs once a step of all modules, those without slots of their own, encoders, last."""
    tasks: list[Task] = []
    for name, work in sorted(works.items(), key=lambda entry: entry[0] not in slots):
        tasks += closing_tasks(work, final_passes(slots[name]) if name in slots else placed_passes(step, work))
    return tasks


def closing_tasks(work: ModuleWork, finals: Sequence[FinalPasses | None]) -> list[Task]:
    """Return what runs once a step: reduction of gradients that no micro-batch reduced, update, all-gather of weights
    that the update sharded.

    `finals`: by pipeline rank; None: it has forwards only, and nothing to update. Nor has one whose weights are frozen.
    """
    tasks: list[Task] = []
    for pipeline_rank, last in enumerate(finals):
        if last is None or not any(map(work.trains, rank_stages(work, pipeline_rank))):
            continue
        replicated = work.reduces_gradients and not reduces_each_micro_batch(work.layout)
        update = collective_task(work, pipeline_rank, "update", None)
        if replicated:
            tasks.append(
                collective_task(work, pipeline_rank, "sync", None).with_dependencies(
                    *backward_ids(work, pipeline_rank, last)
                )
            )
            update = update.with_dependencies(tasks[-1].id)
        else:
            update = update.with_dependencies(*backward_ids(work, pipeline_rank, last), *sync_ids(work, pipeline_rank))
        tasks.append(update)
        if replicated and work.layout.zero:
            tasks.append(collective_task(work, pipeline_rank, "gather", None).with_dependencies(update.id))
    return tasks


def final_passes(slots: Sequence[Sequence[Slot]]) -> list[FinalPasses | None]:
    """Return, by pipeline rank, the passes that complete the gradients of a module with a schedule."""
    finals = [
        {(micro_batch, chunk): phase for phase, micro_batch, chunk in of_rank if phase in ("B", "W")}
        for of_rank in slots
    ]
    return [last or (None if of_rank else {}) for last, of_rank in zip(finals, slots, strict=True)]


def placed_passes(step: Step, work: ModuleWork) -> list[FinalPasses | None]:
    """Return, by pipeline rank, the passes that complete the gradients of an encoder."""
    split_backwards, pipeline = ModulePlacements(step, work).split_backwards.items(), work.pipeline_ranks
    return [
        {
            (micro_batch, stage // pipeline): phase
            for (micro_batch, stage), phase in split_backwards
            if stage % pipeline == pipeline_rank
        }
        for pipeline_rank in range(pipeline)
    ]


def backward_ids(work: ModuleWork, pipeline_rank: int, last: FinalPasses) -> list[str]:
    """Return the ids of the passes that complete the gradients of a pipeline rank."""
    chunks = [(chunk, stage) for chunk, stage in enumerate(rank_stages(work, pipeline_rank)) if work.trains(stage)]
    return [
        task.id
        for micro_batch in work.micro_batches
        for c in micro_batch
        for chunk, stage in chunks
        if (task := pass_task(work, stage, last.get((c.micro_batch, chunk), "B"), c)).ranks
    ]


def sync_ids(work: ModuleWork, pipeline_rank: int) -> list[str]:
    """Return the ids of the reductions of each micro-batch on a pipeline rank; none below ZeRO-3."""
    if not reduces_each_micro_batch(work.layout):
        return []
    return [
        collective_task(work, stage, "sync", number).id
        for number, micro_batch in enumerate(work.micro_batches)
        if micro_batch
        for stage in rank_stages(work, pipeline_rank)
        if work.trains(stage)
    ]


def rank_stages(work: ModuleWork, pipeline_rank: int) -> range:
    """Return the stages, one for each chunk, on a pipeline rank."""
    return range(pipeline_rank, len(work.stages), work.pipeline_ranks)
