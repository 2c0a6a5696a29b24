"""In which order a rank does its tasks of a step, and which of them it does within others."""

from collections.abc import Collection, Sequence

from planner.plan.model import Plan
from planner.plan.task import Task


def executed(own: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """A rank's tasks in the order in which it does them: those of micro-batches with the reductions behind them; then
    what needs the gradients of all modules.
    """
    return [task for task in own if not closes(task)], [task for task in own if closes(task)]


def closes(task: Task) -> bool:
    """Whether it is an update, or gathers what that changed."""
    return task.micro_batch is None and task.phase in ("update", "gather")


def apart(plan: Plan) -> frozenset[str]:
    """Encoders under ZeRO-3. In the order of another module the passes of a micro-batch may be cut, and lie apart:
    their ranks meet in its gather, in its backward, which gathers anew, and in its sync.
    """
    return frozenset(edge.source for edge in plan.edges if plan.layouts[edge.source].zero == 3)


def inside(task: Task, apart: Collection[str]) -> bool:
    """Whether the passes of a micro-batch do it: FSDP2 gathers and reduces in them."""
    return task.phase in ("gather", "sync") and task.micro_batch is not None and task.module not in apart
