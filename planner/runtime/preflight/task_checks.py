"""Plans of several tasks that this runtime cannot execute, and options that it does not have for them."""

from collections.abc import Iterator

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.runtime.run_options import RunOptions


def task_refusals(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Message, place and fix of what of several tasks cannot be run."""
    if plan.uses.tasks and plan.then:
        yield (
            "steps of several tasks cannot be planned during the run yet",
            "then",
            "plan all steps ahead: leave it out",
        )
    compared = {name for task in plan.uses.tasks.values() if task.loss == "contrastive" for name in task.modules}
    for name in sorted(compared):
        if plan.layouts[name].zero == 3:
            message = f"ZeRO-3 of `{name}`, whose features a task compares, cannot be run yet"
            yield message, f"layouts.{name}.zero", "zero: 2 at most"


def require_drawn_items(plan: Plan, options: RunOptions) -> None:
    """Raises InputError for options that a run of several tasks does not have."""
    given = {"data": options.data, "weights": options.weights}
    for name, value in given.items():
        if plan.uses.tasks and value is not None:
            message = "samples of tasks are drawn, and their modules begin with random weights"
            raise InputError(message, where=f"--{name}", fix="leave it out")
