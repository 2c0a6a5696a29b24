"""What each rank took for its own work in a step, without waiting: its passes, its updates, its data loader."""

from collections.abc import Iterable, Sequence

from planner.plan.task import LOADER, WORK_OF_PHASE, RankWork, Task
from planner.runtime.run_result import TaskRecord


def rank_work(records: Iterable[TaskRecord], tasks: Sequence[Task], loading: Sequence[float]) -> tuple[RankWork, ...]:
    """Seconds of each rank by kind of work; `tasks`: of all ranks; `loading` (ranks,): of items, before the step."""
    phases = {task.id: task.phase for task in tasks}
    found: list[RankWork] = [{LOADER: seconds} for seconds in loading]
    for record in records:
        kind = WORK_OF_PHASE.get(phases[record.id])
        if kind:
            own = record.end - record.start - record.comm
            found[record.rank][kind] = found[record.rank].get(kind, 0.0) + own
    return tuple(found)
