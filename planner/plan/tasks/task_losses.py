"""The losses of several tasks: what compares features of all samples of a task, between its forwards and its backwards.

Every rank with samples of a task gathers the features of all others, takes its samples' share of the loss, and gets the
gradients of its features back: one task of the step, on all these ranks. Passes that it does not hold up run beside it.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from planner.plan.plan_file import PlanTask
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.plan.tasks.merge_orders import topological_order
from planner.plan.tasks.module_tasks import BACKWARD, FORWARD, INPUTS
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.step_draft import StepDraft
from planner.plan.tasks.task_table import GroupWork
from planner.specs.base import Layers, Ranks


def order_with_losses(
    draft: StepDraft,
    slots: Mapping[str, Sequence[Sequence[Slot]]],
    tasks: Mapping[str, PlanTask],
    synchronised: Mapping[str, Collection[Phase]],
) -> IntArray:
    """Return what runs in micro-batches of modules with several losses, by number: each slot of a schedule beside that
    of the others, and each loss behind the last forward that it waits for. Raises InputError for a cyclic wait.
    """
    numbers, when = list[int](), list[float]()
    for name, of_ranks in slots.items():
        for pipeline_rank, own in enumerate(of_ranks):
            for at, slot in enumerate(own):
                (found,) = draft.modules[name].in_slots([[slot]], pipeline_rank)
                numbers += found
                when += [at] * len(found)
    known = dict(zip(numbers, when, strict=True))
    for name, task in tasks.items():
        forwards, backwards = passes_around(draft, task)
        if forwards and task.loss == "contrastive":
            loss = add_loss(draft, name, task, forwards)
            draft.added_waits += [(backward, loss) for backward in backwards]
            numbers.append(loss)
            when.append(min((known[backward] for backward in backwards if backward in known), default=np.inf) - 0.5)
    order = np.array(numbers, dtype=np.int64)[np.argsort(when, kind="stable")]
    return order[topological_order(draft.table(order), synchronised)]


def passes_around(draft: StepDraft, task: PlanTask) -> tuple[list[int], list[int]]:
    """Return the forwards that make the features of a task's samples, and the backwards that take their gradients."""
    samples, forwards, backwards = {*task.samples}, list[int](), list[int]()
    for name in task.modules:
        module = draft.modules[name]
        places = [place for place, work in enumerate(module.cells) if not samples.isdisjoint(work.items)]
        last = module.numbers[places, -1]
        forwards += last[:, FORWARD].tolist()
        backwards += last[:, [BACKWARD, INPUTS]].ravel().tolist()
    return forwards, backwards


def add_loss(draft: StepDraft, name: str, task: PlanTask, forwards: Sequence[int]) -> int:
    """Add the loss of a task behind these forwards, and return its number. Its tokens are the task's samples in the
    step.
    """
    works = [draft.kind_and_work(forward) for forward in forwards]
    ranks = Ranks(sorted({rank for kind, _ in works for rank in kind.ranks}))
    samples = tuple(sorted({sample for _, work in works for sample in work.items}.intersection(task.samples)))
    kind = Task(task.modules[0], Layers((works[0][0].layers[-1],)), "loss", None, name, ranks)
    return draft.add(kind, GroupWork(None, name, ranks, samples, (1,) * len(samples)), forwards)
