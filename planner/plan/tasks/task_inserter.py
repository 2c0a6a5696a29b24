"""An order of tasks, by number, into which others are inserted in bulk, without rebuilding it for each insertion."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from planner.plan.task import TaskRef
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.step_draft import StepDraft


class TaskInserter:
    """An order of tasks with the tasks inserted in front of each. Tasks that run once a step are at its end."""

    def __init__(self, draft: StepDraft, order: Sequence[int] | IntArray) -> None:
        self.draft, self.order = draft, np.asarray(order, dtype=np.int64)
        self.table = draft.table(self.order)
        self.position = draft.places_in(self.order)  # of each number; −1: not in the order
        once = np.flatnonzero(self.table.micro_batch < 0)
        self.end = int(once[0]) if len(once) else len(order)
        # Position → tasks; the length of the order: at its end
        self.inserted_before: dict[int, list[int]] = defaultdict(list)
        self.inserted_at: dict[int, int] = {}  # inserted task → position
        self.ahead: dict[int, int] = defaultdict(int)  # position → how many tasks were inserted there first of all

    def commit(self) -> None:
        """Merge what was inserted into the order: positions count it from now on."""
        TaskInserter.__init__(self, self.draft, self.resulting_order())

    def add_wait(self, numbers: Iterable[int], awaited: int) -> None:
        """Let the forwards among these tasks also wait for `awaited`."""
        self.draft.added_waits += [(number, awaited) for number in numbers if self.draft.is_forward(number)]

    def insert_before(self, tasks: Sequence[int], position: int) -> None:
        """Insert tasks directly before the position, behind what was inserted there earlier."""
        self.inserted_before[position] += tasks
        self.inserted_at.update(dict.fromkeys(tasks, position))

    def insert_after(self, tasks: Sequence[int], position: int) -> None:
        """Insert tasks at the position before earlier insertions there: directly after the preceding task."""
        self.inserted_before[position][:0] = tasks
        self.inserted_at.update(dict.fromkeys(tasks, position))

    def insert_first(self, tasks: Sequence[int], position: int) -> None:
        """Insert tasks before the position and all that others insert there, behind what was inserted so earlier."""
        first = self.ahead[position]
        self.inserted_before[position][first:first] = tasks
        self.ahead[position] += len(tasks)
        self.inserted_at.update(dict.fromkeys(tasks, position))

    def insert_late(self, tasks: Sequence[int], followers: Iterable[int], behind: Collection[int]) -> None:
        """Insert tasks directly before the first of `followers`, if that is after all of `behind`; else directly after
        these.
        """
        first = self.first_position(followers)
        if first >= max(self.positions_after(behind)):
            self.insert_before(tasks, first)
        else:
            self.insert_directly_after(tasks, behind)

    def insert_directly_after(self, tasks: Sequence[int], behind: Collection[int]) -> None:
        """Insert tasks directly after the last of `behind`, before what was inserted there earlier."""
        after_order, after_inserted = self.positions_after(behind)
        if after_order > after_inserted:
            self.insert_after(tasks, after_order)
        else:
            inserted = self.inserted_before[after_inserted]
            index = max((at for at, task in enumerate(inserted) if task in behind), default=-1)
            inserted[index + 1 : index + 1] = tasks
            self.inserted_at.update(dict.fromkeys(tasks, after_inserted))

    def positions(self, numbers: Iterable[int]) -> list[int]:
        """Return the positions of those of some tasks that are in the order."""
        known = len(self.position)
        return [at for number in numbers if number < known and (at := int(self.position[number])) >= 0]

    def positions_after(self, numbers: Collection[int]) -> tuple[int, int]:
        """Return the position behind tasks that are in the order, and that of those that are inserted; 0: none."""
        inserted = (self.inserted_at[number] for number in numbers if number in self.inserted_at)
        return 1 + max(self.positions(numbers), default=-1), max(inserted, default=0)

    def insert_at_end(self, tasks: Sequence[int]) -> None:
        """Insert tasks after the last micro-batch."""
        self.insert_before(tasks, self.end)

    def first_position(self, numbers: Iterable[int]) -> int:
        """Return the position of the first of these tasks; the end of the micro-batches where there is none."""
        return min(self.positions(numbers), default=self.end)

    def positions_named(self, ref: TaskRef) -> list[int]:
        """Return the positions of tasks of a reference's module, phase and micro-batch."""
        named = self.table.column(
            lambda kind: (kind.module, kind.phase, kind.of) == (ref.module, ref.phase, ref.of), np.bool_
        )
        found: list[int] = np.flatnonzero(
            named & (self.table.micro_batch == (-1 if ref.micro_batch is None else ref.micro_batch))
        ).tolist()
        return found

    def resulting_order(self) -> list[int]:
        """Return the order with all insertions."""
        order: list[int] = self.order.tolist()
        result, done = list[int](), 0
        for position in sorted(self.inserted_before):
            result += order[done:position]
            result += self.inserted_before[position]
            done = position
        return result + order[done:]
