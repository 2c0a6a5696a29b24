"""Rounds of a pipeline's step: once it is warm, a named schedule does the same again, so many micro-batches later.

On every pipeline rank the slots of a step with m micro-batches are

    warm-up, round after round, drain

and one of m − n more has the same warm-up and drain, and n / (micro-batches of a round) more rounds between them. So a
step of equal micro-batches follows from a shorter one, where rounds take equally long (simulate/repetition.py).
"""

from collections.abc import Hashable
from typing import NamedTuple

from planner.plan.plan_file import Layout, Plan, Step, assignments
from planner.plan.schedules import SCHEDULES, Slot, default_schedule, schedule_slots
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, with_fields
from planner.specs.parallelism import ZERO_BUBBLE
from planner.specs.workload.items import part_lengths

WATCHED = 3  # rounds that must turn out equal: a pass waits for none further back than the two rounds before it
BEFORE, BEHIND = -1, WATCHED  # of tasks in no watched round
WARM_AND_DRAINED = 2  # rounds of micro-batches that fill the pipeline at most
UNREPEATED = ("gpipe", "forward_only")  # schedules in which forwards and backwards do not alternate


class TaskRound(NamedTuple):
    """The watched round that a task is in, BEFORE or BEHIND all; and what it is within its round."""

    number: int
    within: Hashable


class Rounds(NamedTuple):
    """The watched rounds of a shortened step, behind whose last one the others were left out."""

    micro_batches: int  # of a round
    left_out: int  # rounds
    split: bool  # whether backwards are in two
    stages: dict[Layers, int]
    positions: list[dict[Slot, int]]  # by pipeline rank: slot → its place in the first watched round
    slots: int  # of a round on a pipeline rank

    def of(self, task: Task) -> TaskRound:
        """Return the round of a task."""
        if task.micro_batch is None:
            return TaskRound(BEHIND, None)
        pipeline, stage = len(self.positions), self.stages[task.layers]
        chunk, pipeline_rank = divmod(stage, pipeline)
        number, place = divmod(
            self.positions[pipeline_rank][self.slot_phase(task), task.micro_batch, chunk], self.slots
        )
        number = max(BEFORE, min(BEHIND, number))
        return TaskRound(number, (pipeline_rank, place, task.phase, task.of, task.group))

    def slot_phase(self, task: Task) -> Phase:
        """Return the phase of the slot that a task belongs to."""
        if task.phase in ("F", "B", "I", "W"):
            return task.phase
        if task.phase == "gather" or task.of == "F":
            return "F"
        if not self.split:
            return "B"
        return "W" if task.phase == "sync" else "I"


def shortened(plan: Plan, number: int, settling: int) -> tuple[Plan, Rounds] | None:
    """Return the plan without most rounds of a step, and its rounds; None where the step does not repeat, or is hardly
    longer. `settling`: rounds before those that are watched.
    """
    step = plan.steps[number]
    schedule = repeated_schedule(plan, step)
    if schedule is None:
        return None
    ((_, layout),) = plan.layouts.items()
    count, each = len(step.micro_batches), layout.pp
    left_out = count // each - (WARM_AND_DRAINED + settling + WATCHED)
    if 3 * left_out * each < count or not equal_micro_batches(plan, step):
        return None
    few = with_fields(step, micro_batches=step.micro_batches[: count - left_out * each])
    steps = (*plan.steps[:number], few, *plan.steps[number + 1 :])
    rounds = watched_rounds(layout, schedule, len(few.micro_batches), settling)
    return with_fields(plan, steps=steps), rounds._replace(left_out=left_out)


def repeated_schedule(plan: Plan, step: Step) -> str | None:
    """Return the name of the schedule of a step that has rounds; None where it has none."""
    if len(plan.layouts) > 1:
        return None
    ((module, layout),) = plan.layouts.items()
    order = plan.order_of(step, module) or default_schedule(layout.vpp)
    if layout.pp == 1 or len(layout.stages) != layout.pp * layout.vpp or not isinstance(order, str):
        return None
    return order if order in SCHEDULES and order not in UNREPEATED else None


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


def watched_rounds(layout: Layout, schedule: str, micro_batches: int, settling: int) -> Rounds:
    """Return the rounds to watch of a step with so many micro-batches, none of which is left out."""
    slots = schedule_slots(schedule, layout.pp, micro_batches, layout.vpp)
    phases = ("F", "I", "W") if schedule in ZERO_BUBBLE else ("F", "B")
    length = len(phases) * layout.pp * layout.vpp
    positions = []
    for of_rank in slots:
        warm = next(place for place, slot in enumerate(of_rank) if slot[0] == phases[-1]) - len(phases) + 1
        first = warm + settling * length
        positions.append({slot: place - first for place, slot in enumerate(of_rank)})
    stages = {layers: stage for stage, layers in enumerate(layout.stages)}
    return Rounds(layout.pp, 0, len(phases) > 2, stages, positions, length)
