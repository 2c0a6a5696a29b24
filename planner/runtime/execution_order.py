"""The order in which a rank executes its tasks of a step, and which of them FSDP2 executes inside others."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from planner.plan.plan_file import Plan
from planner.plan.task import Phase, Task


def execution_order(own: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """Splits a rank's tasks, in order, into those of micro-batches with the reductions after them, and those that need
    the gradients of all modules (updates, and gathers of updated parameters).
    """
    return [task for task in own if not is_update_or_regather(task)], [
        task for task in own if is_update_or_regather(task)
    ]


def is_update_or_regather(task: Task) -> bool:
    """Whether the task is an update, or gathers updated parameters."""
    return task.micro_batch is None and task.phase in ("update", "gather")


def task_gathered_encoders(plan: Plan) -> frozenset[str]:
    """Encoders under ZeRO-3. Their passes are placed between those of another module and may be split, so their ranks
    synchronise in the gather task of a micro-batch, in its backward, which gathers again, and in its sync.
    """
    return frozenset(edge.source for edge in plan.edges if plan.layouts[edge.source].zero == 3)


def executed_by_fsdp(task: Task, task_gathered: Collection[str]) -> bool:
    """Whether FSDP2 executes this gather or sync inside the passes of its micro-batch, so that it is no step of its
    own. `task_gathered`: the modules of `task_gathered_encoders`, which execute them as tasks.
    """
    return task.phase in ("gather", "sync") and task.micro_batch is not None and task.module not in task_gathered


def sync_point(task: Task, synchronised: Mapping[str, Collection[Phase]]) -> str:
    """Name of the point at which the ranks of a task synchronise: all with a task of this name wait for each other.
    `synchronised`: by module, phases of a micro-batch in which its ranks synchronise.
    """
    return task.id.rpartition("/")[0] if task.phase in synchronised.get(task.module, ()) else task.id


def sync_members(tasks: Iterable[Task], synchronised: Mapping[str, Collection[Phase]]) -> dict[str, set[int]]:
    """By synchronisation point of these tasks: the ranks that wait for each other there."""
    members: dict[str, set[int]] = {}
    for task in tasks:
        members.setdefault(sync_point(task, synchronised), set()).update(task.ranks)
    return members
