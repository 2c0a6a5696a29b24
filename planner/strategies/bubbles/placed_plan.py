"""A plan with the passes of its encoders placed as a schedule of gaps says."""

from planner.plan.plan_file import Plan, TaskPlacement
from planner.plan.task import TaskName
from planner.specs.base import with_fields
from planner.strategies.bubbles.encoder_passes import EncoderPass, GapProblem, Slot
from planner.strategies.bubbles.gap_schedule import GapSchedule


def placed(plan: Plan, found: GapSchedule, problem: GapProblem, after_update: int) -> Plan:
    """A colocated plan of one step with passes beside those of the LLM, and backwards behind these beside its
    reduction, of which so many of the last ones beside its gather of updated weights; where they are, if it has none.
    """
    module = problem.module
    reduced = len(found.behind) - after_update
    exchanges = ["sync"] * reduced + ["gather"] * after_update
    places = [
        placement(
            f"{pass_name(one)}@{stage}" if one.stages > 1 else pass_name(one),
            f"{module}.{slot_name(problem.slots[at])}",
        )
        for one, starts in found.beside
        for stage, at in zip(one.route, starts, strict=True)
    ]
    behind = zip(found.behind, exchanges, strict=True) if problem.once else ()
    places += [placement(pass_name(one), f"{module}.{what}") for one, what in behind]
    (step,) = plan.steps
    return with_fields(plan, steps=(with_fields(step, order={**step.order, "place": (*step.placed, *places)}),))


def placement(do: str, beside: str) -> TaskPlacement:
    """A pass beside a task."""
    return TaskPlacement(do=TaskName(do), beside=TaskName(beside))


def pass_name(one: EncoderPass) -> str:
    """A pass of an encoder, as a reference has it."""
    return f"{one.module}.{one.phase}{one.micro_batch}"


def slot_name(slot: Slot) -> str:
    """A pass of the LLM on its first stage, as a reference has it."""
    return f"{slot.phase}{slot.micro_batch}@{slot.stage}"
