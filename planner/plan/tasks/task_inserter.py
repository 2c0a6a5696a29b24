"""An order of tasks into which others are inserted in bulk, without rebuilding it for each insertion."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from planner.plan.task import Task

TaskKey = tuple[str, str, str, int | None]  # module, phase, content of a transfer (F or B), micro-batch


class TaskInserter:
    """An order of tasks with the tasks inserted in front of each. Tasks that run once a step are at its end."""

    def __init__(self, order: Sequence[Task]) -> None:
        self.order = order
        self.position = {task.id: position for position, task in enumerate(order)}
        self.by_key: dict[TaskKey, list[int]] = defaultdict(list)
        for position, task in enumerate(order):
            self.by_key[task.module, task.phase, task.of, task.micro_batch].append(position)
        self.end = next((position for position, task in enumerate(order) if task.micro_batch is None), len(order))
        # Position → tasks; the length of the order: at its end
        self.inserted_before: dict[int, list[Task]] = defaultdict(list)
        self.inserted_at: dict[str, int] = {}  # id of an inserted task → position
        self.extra_waits: dict[str, list[str]] = defaultdict(list)

    def commit(self) -> None:
        """Merge what was inserted into the order: positions count it from now on."""
        TaskInserter.__init__(self, self.resulting_order())

    def add_wait(self, ids: Iterable[str], awaited: str) -> None:
        """Let these forwards of the order also wait for the task `awaited`."""
        for id in ids:
            self.extra_waits[id].append(awaited)

    def insert_before(self, tasks: Sequence[Task], position: int) -> None:
        """Insert tasks directly before the position, behind what was inserted there earlier."""
        self.inserted_before[position] += tasks
        self.inserted_at.update(dict.fromkeys((task.id for task in tasks), position))

    def insert_after(self, tasks: Sequence[Task], position: int) -> None:
        """Insert tasks at the position before earlier insertions there: directly after the preceding task."""
        self.inserted_before[position][:0] = tasks
        self.inserted_at.update(dict.fromkeys((task.id for task in tasks), position))

    def insert_late(self, tasks: Sequence[Task], followers: Iterable[str], ids: Collection[str]) -> None:
        """Insert tasks directly before the first of `followers`, if that is after all of `ids`; else directly after
        `ids`.
        """
        first = self.first_position(followers)
        if first >= max(self.positions_after(ids)):
            self.insert_before(tasks, first)
        else:
            self.insert_directly_after(tasks, ids)

    def insert_directly_after(self, tasks: Sequence[Task], ids: Collection[str]) -> None:
        """Insert tasks directly after the last of `ids`, before what was inserted there earlier."""
        after_order, after_inserted = self.positions_after(ids)
        if after_order > after_inserted:
            self.insert_after(tasks, after_order)
        else:
            inserted = self.inserted_before[after_inserted]
            index = max((at for at, task in enumerate(inserted) if task.id in ids), default=-1)
            inserted[index + 1 : index + 1] = tasks
            self.inserted_at.update(dict.fromkeys((task.id for task in tasks), after_inserted))

    def positions_after(self, ids: Collection[str]) -> tuple[int, int]:
        """Return the position behind those of `ids` that are in the order, and that of the inserted ones; 0: none."""
        after_order = max((self.position[id] + 1 for id in ids if id in self.position), default=0)
        return after_order, max((self.inserted_at[id] for id in ids if id in self.inserted_at), default=0)

    def insert_at_end(self, tasks: Sequence[Task]) -> None:
        """Insert tasks after the last micro-batch."""
        self.insert_before(tasks, self.end)

    def first_position(self, ids: Iterable[str]) -> int:
        """Return the position of the first of these tasks; the end of the micro-batches where there is none."""
        return min((self.position[id] for id in ids if id in self.position), default=self.end)

    def resulting_order(self) -> list[Task]:
        """Return the order with all insertions and added dependencies."""
        result: list[Task] = []
        for position, task in enumerate(self.order):
            result += self.inserted_before.get(position, ())
            awaited = self.extra_waits.get(task.id) if task.phase == "F" else None
            result.append(task.with_dependencies(*awaited) if awaited else task)
        return result + self.inserted_before.get(len(self.order), [])
