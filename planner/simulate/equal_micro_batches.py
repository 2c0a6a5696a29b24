"""Seconds of a pipeline's step whose micro-batches are alike: one of them is expanded and priced, the others are copies
of its activities.

Tasks of a micro-batch wait for none of another one, only for their turn; so a step is its schedule's slots, in order,
each with the activities of one phase and stage of a micro-batch. Where searches compare many layouts by their seconds,
nothing else of a step is needed. The first micro-batch is priced apart, since ZeRO-3 gathers for it what may stay.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import NamedTuple

import numpy as np

from planner.costs import Cost
from planner.plan.plan_file import Plan
from planner.plan.task import Phase, Task
from planner.plan.tasks.expand import closing_tasks, final_passes
from planner.plan.tasks.module_work import module_work, slot_tasks
from planner.plan.tasks.rounds import equal_micro_batches
from planner.simulate.activities import NO_ACTIVITY, Activities, IntArray, RaggedArray, ragged
from planner.simulate.compiled_clock import run_activities
from planner.simulate.engine import task_activities
from planner.specs.base import with_fields

Price = Callable[[Task], Cost]
PRICED = 2  # micro-batches: the first, and one for all others
PHASES: tuple[Phase, ...] = ("F", "B", "I", "W")


class Template(NamedTuple):
    """The tasks of the priced micro-batches, stage by stage and phase by phase, and those that run once a step."""

    tasks: list[list[Task]]  # of each priced micro-batch
    blocks: dict[tuple[int, int], tuple[int, int]]  # stage, phase → first place in a micro-batch, and number of tasks
    closing: list[Task]
    slots: list[IntArray]  # by pipeline rank, (slots, 3): phase, micro-batch, stage


def equal_step_seconds(
    plan: Plan, number: int, omitted_ranks: Container[int], price_of: Callable[[Sequence[Task], int], Price]
) -> float | None:
    """Seconds of a step; None where its micro-batches differ, or it has no pipeline. `price_of`: of some tasks, with so
    many micro-batches like the last left out.
    """
    step = plan.steps[number]
    layouts = [*plan.layouts.values()]
    if len(layouts) > 1 or layouts[0].pp == 1 or len(step.micro_batches) < PRICED:
        return None
    if not equal_micro_batches(plan, step):
        return None
    template = step_template(plan, number, omitted_ranks)
    left_out = len(step.micro_batches) - PRICED
    times, ended = run_activities(step_activities(template, lambda tasks: price_of(tasks, left_out)))
    assert ended.all()
    return float(times.ends.max())


def step_template(plan: Plan, number: int, omitted_ranks: Container[int]) -> Template:
    """Expand the priced micro-batches of a step."""
    step, ((module, layout),) = plan.steps[number], plan.layouts.items()
    work = module_work(plan, with_fields(step, micro_batches=step.micro_batches[:PRICED]), module, omitted_ranks)
    whole = replace(work, micro_batches=work.micro_batches[:1] * len(step.micro_batches))
    slots = whole.slots(plan.order_of(step, module))
    tasks: list[list[Task]] = [[] for _ in range(PRICED)]
    blocks = {}
    for stage, phase in product(range(len(work.stages)), dict.fromkeys(slot[0] for slot in slots[0])):
        start = len(tasks[0])
        for micro_batch, every in enumerate(tasks):
            every += slot_tasks(work, stage, phase, micro_batch)
        blocks[stage, PHASES.index(phase)] = start, len(tasks[0]) - start
    numbers = [
        np.array([(PHASES.index(p), at, chunk * layout.pp + rank) for p, at, chunk in of_rank], dtype=np.int64)
        for rank, of_rank in enumerate(slots)
    ]
    return Template(tasks, blocks, closing_tasks(work, final_passes(slots)), numbers)


def step_activities(template: Template, price_of: Callable[[Sequence[Task]], Price]) -> Activities:
    """The activities of the whole step, in the order of its schedule."""
    priced = [*chain.from_iterable(template.tasks), *template.closing]
    price, each = price_of(priced), len(template.tasks[0])
    few = task_activities(priced, [task.id for task in priced], [price(task).value for task in priced])
    order = np.concatenate([slot_activities(template, of_rank, each) for of_rank in template.slots])
    micro_batch = order // each
    like = np.minimum(micro_batch, PRICED - 1)  # the priced micro-batch of each
    source = like * each + order % each
    new = np.empty(len(order), dtype=np.int64)  # micro-batch and place in it → number in the step
    new[order] = np.arange(len(order))
    closing = range(PRICED * each, len(priced))
    after = gathered(few.after, source)
    apart = np.repeat(micro_batch - like, np.diff(after.offsets))
    after = joined(RaggedArray(after.offsets, new[after.values + apart * each]), closing_waits(few, closing, new, each))
    from_few = np.concatenate([source, np.arange(closing.start, closing.stop)])
    count = len(from_few)
    nothing = RaggedArray(np.zeros(count + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    return replace(
        few,
        seconds=few.seconds[from_few],
        lanes=gathered(few.lanes, from_few),
        after=after,
        queued_by=np.full(count, NO_ACTIVITY),
        share=few.share[from_few],
        sharer=few.sharer[from_few],
        bytes=np.zeros(count),
        links=nothing,
    )


def slot_activities(template: Template, slots: IntArray, each: int) -> IntArray:
    """The activities of a pipeline rank in the order of its slots: micro-batch · `each` + place in the micro-batch."""
    block = np.zeros((len(PHASES), 1 + int(slots[:, 2].max()), 2), dtype=np.int64)
    for (stage, phase), found in template.blocks.items():
        if stage < block.shape[1]:
            block[phase, stage] = found
    first, length = block[slots[:, 0], slots[:, 2]].T
    behind = np.cumsum(length) - length
    return np.repeat(slots[:, 1] * each + first - behind, length) + np.arange(int(length.sum()))


def closing_waits(few: Activities, closing: range, new: IntArray, each: int) -> RaggedArray:
    """What tasks that run once a step wait for: for what they do of one micro-batch, for the same of all."""
    found: list[list[int]] = []
    for number in closing:
        awaited = np.array(few.after[number], dtype=np.int64)
        once, places = awaited[awaited >= closing.start], np.unique(awaited[awaited < closing.start] % each)
        of_all = new.reshape(-1, each)[:, places].ravel()
        found.append([*of_all.tolist(), *(once - closing.start + len(new)).tolist()])
    return ragged(found)


def gathered(lists: RaggedArray, which: IntArray) -> RaggedArray:
    """The lists at these places, in this order."""
    lengths = np.diff(lists.offsets)[which]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(lists.offsets[which] - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
    return RaggedArray(offsets, lists.values[places])


def joined(one: RaggedArray, other: RaggedArray) -> RaggedArray:
    """The lists of both, one after the other."""
    return RaggedArray(
        np.concatenate([one.offsets, one.offsets[-1] + other.offsets[1:]]), np.concatenate([one.values, other.values])
    )
