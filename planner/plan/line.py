"""An order of tasks into which others are inserted in bulk, without rebuilding it for each insertion."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from planner.plan.task import Task

TaskKey = tuple[str, str, str, int | None]  # module, phase, content of a transfer (F or B), micro-batch


class Line:
    """An order of tasks with the tasks inserted in front of each. Tasks that run once a step are at its end."""

    def __init__(self, order: Sequence[Task]) -> None:
        self.order = order
        self.at = {task.id: position for position, task in enumerate(order)}
        self.named: dict[TaskKey, list[int]] = defaultdict(list)
        for position, task in enumerate(order):
            self.named[task.module, task.phase, task.of, task.micro_batch].append(position)
        self.end = next((position for position, task in enumerate(order) if task.micro_batch is None), len(order))
        self.before: dict[int, list[Task]] = defaultdict(list)  # position → tasks; the length of the order: at its end
        self.in_front_of: dict[str, int] = {}  # id of an inserted task → position
        self.waits: dict[str, list[str]] = defaultdict(list)

    def settle(self) -> None:
        """Merge what was inserted into the order: positions count it from now on."""
        Line.__init__(self, self.tasks())

    def wait(self, ids: Iterable[str], awaited: str) -> None:
        """Let these forwards of the order also wait for the task `awaited`."""
        for id in ids:
            self.waits[id].append(awaited)

    def put(self, tasks: Sequence[Task], position: int) -> None:
        """Insert tasks directly before the position, behind what was inserted there earlier."""
        self.before[position] += tasks
        self.in_front_of.update(dict.fromkeys((task.id for task in tasks), position))

    def put_behind(self, tasks: Sequence[Task], position: int) -> None:
        """Insert tasks at the position before earlier insertions there: directly after the preceding task."""
        self.before[position][:0] = tasks
        self.in_front_of.update(dict.fromkeys((task.id for task in tasks), position))

    def put_late(self, tasks: Sequence[Task], followers: Iterable[str], ids: Collection[str]) -> None:
        """Insert tasks directly before the first of `followers`, if that is after all of `ids`; else directly after
        `ids`.
        """
        first = self.first(followers)
        after_order = max((self.at[id] + 1 for id in ids if id in self.at), default=0)
        after_inserted = max((self.in_front_of[id] for id in ids if id in self.in_front_of), default=0)
        if first >= max(after_order, after_inserted):
            self.put(tasks, first)
        elif after_order > after_inserted:
            self.put_behind(tasks, after_order)
        else:
            inserted = self.before[after_inserted]
            index = max((at for at, task in enumerate(inserted) if task.id in ids), default=-1)
            inserted[index + 1 : index + 1] = tasks
            self.in_front_of.update(dict.fromkeys((task.id for task in tasks), after_inserted))

    def append(self, tasks: Sequence[Task]) -> None:
        """Insert tasks after the last micro-batch."""
        self.put(tasks, self.end)

    def first(self, ids: Iterable[str]) -> int:
        """Return the position of the first of these tasks; the end of the micro-batches where there is none."""
        return min((self.at[id] for id in ids if id in self.at), default=self.end)

    def tasks(self) -> list[Task]:
        """Return the order with all insertions and added dependencies."""
        result: list[Task] = []
        for position, task in enumerate(self.order):
            result += self.before.get(position, ())
            awaited = self.waits.get(task.id) if task.phase == "F" else None
            result.append(task.waiting_for(*awaited) if awaited else task)
        return result + self.before.get(len(self.order), [])
