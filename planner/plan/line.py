"""An order of tasks into which others are put, many of them, without writing it anew for each."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from planner.plan.task import Task

Name = tuple[str, str, str, int | None]  # module, phase, what it carries, micro-batch


class Line:
    """The tasks of an order, in front of each of them what was put there. It ends with what is done once a step."""

    def __init__(self, order: Sequence[Task]) -> None:
        self.order = order
        self.at = {task.id: place for place, task in enumerate(order)}
        self.named: dict[Name, list[int]] = defaultdict(list)
        for place, task in enumerate(order):
            self.named[task.module, task.phase, task.of, task.micro_batch].append(place)
        self.end = next((place for place, task in enumerate(order) if task.micro_batch is None), len(order))
        self.before: dict[int, list[Task]] = defaultdict(list)  # behind the last: in front of a task that is not there
        self.in_front_of: dict[str, int] = {}  # what was put there → place
        self.waits: dict[str, list[str]] = defaultdict(list)

    def settle(self) -> None:
        """What was put into the order is in it."""
        Line.__init__(self, self.tasks())

    def wait(self, ids: Iterable[str], awaited: str) -> None:
        """Forwards of the order that wait for one more."""
        for id in ids:
            self.waits[id].append(awaited)

    def put(self, tasks: Sequence[Task], place: int) -> None:
        """Right in front of the task that was at this place at first."""
        self.before[place] += tasks
        self.in_front_of.update(dict.fromkeys((task.id for task in tasks), place))

    def put_behind(self, tasks: Sequence[Task], place: int) -> None:
        """Right behind the task before that."""
        self.before[place][:0] = tasks
        self.in_front_of.update(dict.fromkeys((task.id for task in tasks), place))

    def put_late(self, tasks: Sequence[Task], followers: Iterable[str], ids: Collection[str]) -> None:
        """Right in front of the first of `followers`, if that is behind all of `ids`; else right behind these."""
        first = self.first(followers)
        fixed = max((self.at[id] + 1 for id in ids if id in self.at), default=0)
        late = max((self.in_front_of[id] for id in ids if id in self.in_front_of), default=0)
        if first >= max(fixed, late):
            self.put(tasks, first)
        elif fixed > late:
            self.put_behind(tasks, fixed)
        else:
            there = self.before[late]
            last = max((at for at, task in enumerate(there) if task.id in ids), default=-1)
            there[last + 1 : last + 1] = tasks
            self.in_front_of.update(dict.fromkeys((task.id for task in tasks), late))

    def append(self, tasks: Sequence[Task]) -> None:
        """Behind the last micro-batch."""
        self.put(tasks, self.end)

    def first(self, ids: Iterable[str]) -> int:
        """The place of the first of these; behind the last micro-batch where none is there."""
        return min((self.at[id] for id in ids if id in self.at), default=self.end)

    def tasks(self) -> list[Task]:
        """The order that all this makes."""
        found: list[Task] = []
        for place, task in enumerate(self.order):
            found += self.before.get(place, ())
            late = self.waits.get(task.id) if task.phase == "F" else None
            found.append(task.waiting_for(*late) if late else task)
        return found + self.before.get(len(self.order), [])
