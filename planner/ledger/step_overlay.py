"""Comparison of a measured trace with a plan's simulation, step by step, once it is known to be of this plan.

Beside the step stand the slow ranks that make all others wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.ledger.slow_ranks import SlowRank, slow_ranks, work_of_ranks
from planner.ledger.step_difference import StepDifference, explain_difference
from planner.plan.task import Task
from planner.simulate import RecordedStep, Timeline, TracedStep, median_step, read_steps

MOST_NAMED = 3  # tasks to name in an error
FIX = "give the plan that was run, or run this one with `planner run PLAN --trace FILE`"


@dataclass(frozen=True, slots=True)
class StepOverlay:
    """One step of a plan: its simulation, and the measured step of median length."""

    step: int
    simulated: Timeline
    tasks: Sequence[Task]
    recorded: RecordedStep
    measured_count: int  # number of measured steps of it in the file
    explained: StepDifference
    slow: list[SlowRank]

    @property
    def traced(self) -> TracedStep:
        """The measured step, to draw."""
        return TracedStep(self.recorded.timeline, self.tasks, "measured", None, self.step, self.recorded.run_step)


def overlay_steps(
    simulated: Sequence[tuple[Timeline, Sequence[Task]]], path: Path, name: str, size: int
) -> tuple[StepOverlay, ...]:
    """Every step of a plan (`name`, on `size` ranks) of which the file holds measurements. Raises InputError."""
    recorded = measured_steps_of_plan(path, [tasks for _, tasks in simulated], name, size)
    overlays = []
    for step, (timeline, tasks) in enumerate(simulated):
        of_step = tuple(r for r in recorded if r.step == step)
        if of_step:
            chosen = median_step(of_step)
            explained = explain_difference(timeline, chosen.timeline, tasks)
            slow = slow_ranks(*map(work_of_ranks, (chosen.timeline, timeline)))
            overlays.append(StepOverlay(step, timeline, tasks, chosen, len(of_step), explained, slow))
    return tuple(overlays)


def measured_steps_of_plan(
    path: Path, tasks: Sequence[Sequence[Task]], name: str, size: int
) -> tuple[RecordedStep, ...]:
    """The measured steps of a plan (`name`, on `size` ranks; `tasks`: of each of its steps) that the file holds.

    Raises InputError when its times are simulated, or of another plan. Steps that were planned during the run are
    not in the plan, and are left out.
    """
    recorded = read_steps(path)
    if recorded[0].label != "measured":
        fix = "give the trace that `planner run --trace` wrote"
        raise InputError("these times are simulated, not measured", where=f"{path} (otherData.planner)", fix=fix)
    of_plan = tuple(each for each in recorded if each.step < len(tasks))
    for each in of_plan:
        require_same_plan(each, tasks[each.step], path, name, size)
    if not of_plan:
        numbers = ", ".join(str(r.step) for r in recorded[:MOST_NAMED])
        what = f"the trace is of another plan: it has steps {numbers}, {name} has {len(tasks)}"
        raise InputError(what, where=f"{path} (otherData.steps)", fix=FIX)
    return of_plan


def require_same_plan(recorded: RecordedStep, tasks: Sequence[Task], path: Path, name: str, size: int) -> None:
    """Raises InputError when the recorded tasks, ranks or tokens are those of another plan."""
    tokens = {task.id: task.tokens for task in tasks}
    of_what = f"the trace is of another plan{' of the same name' if recorded.plan == name else f', {recorded.plan}'}"
    strange = [task for task in recorded.groups if task not in tokens]
    if strange:
        more = f" and {len(strange) - MOST_NAMED} more" if len(strange) > MOST_NAMED else ""
        what = f"{of_what}: {name} has no task {', '.join(strange[:MOST_NAMED])}{more}"
        raise InputError(what, where=str(path), fix=FIX)
    if recorded.timeline.ranks != size:
        what = f"{of_what}: it has {recorded.timeline.ranks} ranks, {name} has {size}"
        raise InputError(what, where=f"{path} (otherData.ranks)", fix=FIX)
    for task, worked_on in recorded.tokens.items():
        if worked_on != tokens[task]:
            what = f"{of_what}: {task} worked on {worked_on:,} tokens, in {name} on {tokens[task]:,}"
            raise InputError(what, where=str(path), fix=FIX)
