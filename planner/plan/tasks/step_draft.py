"""The tasks of a step by number while their order is made: those that modules may have, and what encoders need besides.

Transfers between modules, and parts of forwards that placements cut, have numbers behind those of the modules. Of a
forward in parts the last one keeps its number, as what follows waits for that; who comes before it meets the first.
What a placement makes of a pass, a part or one that runs beside others, is a kind of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.plan.task import Task
from planner.plan.tasks.module_tasks import CODES, FORWARD, ModuleTasks, Waits
from planner.plan.tasks.module_work import ModuleWork
from planner.plan.tasks.ragged_array import IntArray, ragged_of_pairs
from planner.plan.tasks.task_table import GroupWork, TaskTable, task_on
from planner.specs.base import Layers


class StepDraft:
    """The tasks of some modules, the first ones numbered first."""

    def __init__(self, works: Iterable[ModuleWork]) -> None:
        self.modules: dict[str, ModuleTasks] = {}
        self.size = 0  # numbers of the modules
        for work in works:
            self.modules[work.module] = ModuleTasks(work, self.size)
            self.size += self.modules[work.module].size
        self.added: list[tuple[Task, GroupWork]] = []  # kinds and works of numbers from `size` on
        self.added_waits: list[tuple[int, int]] = []
        self.first_parts: dict[int, int] = {}  # forward in parts → its first part
        self.own_kinds: dict[int, Task] = {}  # pass that a placement cuts, or has run beside others → its kind

    @cached_property
    def waits(self) -> list[Waits]:
        """What waits for what among tasks of the modules."""
        return [module.waits() for module in self.modules.values()]

    def add(self, kind: Task, work: GroupWork, after: Iterable[int]) -> int:
        """Add a task of a kind on some work, which waits for these, and return its number."""
        number = self.size + len(self.added)
        self.added.append((kind, work))
        self.added_waits += [(number, awaited) for awaited in after]
        return number

    def cut(self, forward: int, runs: Sequence[Layers]) -> list[int]:
        """Cut a forward into runs of its layers, each of which waits for the one before it; return their numbers."""
        kind, work = self.kind_and_work(forward)
        numbers: list[int] = []
        for run in runs[:-1]:
            numbers.append(self.add(kind.changed(layers=run), work, numbers[-1:]))
        if numbers:
            self.first_parts[forward], self.own_kinds[forward] = numbers[0], kind.changed(layers=runs[-1])
            self.added_waits.append((forward, numbers[-1]))
        return [*numbers, forward]

    def run_beside(self, number: int) -> None:
        """Let a pass run beside what its ranks have of other modules."""
        kind, work = self.kind_and_work(number)
        if number < self.size:
            self.own_kinds[number] = kind.changed(beside=True)
        else:
            self.added[number - self.size] = kind.changed(beside=True), work

    def kind_and_work(self, number: int) -> tuple[Task, GroupWork]:
        """Return the kind of a task, and its work."""
        if number >= self.size:
            return self.added[number - self.size]
        module = next(each for each in self.modules.values() if number < each.first + each.size)
        local = np.array([number - module.first])
        kind = self.own_kinds.get(number) or module.kind_task(int(module.kinds_of(local)[0]))
        return kind, module.works[int(module.works_of(local)[0])]

    def task(self, number: int) -> Task:
        """Return a task as an object, without what it waits for."""
        return task_on(*self.kind_and_work(number))

    def is_forward(self, number: int) -> bool:
        """Whether a task is a forward."""
        return number % len(CODES) == FORWARD if number < self.size else self.added[number - self.size][0].phase == "F"

    def awaited_by(self, numbers: Sequence[int]) -> Mapping[int, set[int]]:
        """Return what each of some tasks waits for."""
        found: dict[int, set[int]] = {number: set() for number in numbers}
        for waiting, awaited in self.all_waits():
            which = np.isin(waiting, numbers)
            for number, each in zip(waiting[which].tolist(), awaited[which].tolist(), strict=True):
                found[number].add(each)
        return found

    def all_waits(self) -> list[Waits]:
        """Return what waits for what, in the order of what each waits for; of forwards in parts the first waits for
        what the whole does.
        """
        added = np.array(self.added_waits, dtype=np.int64).reshape(-1, 2)
        found = self.waits
        if self.first_parts:
            wholes, parts = ([*each] for each in (self.first_parts.keys(), self.first_parts.values()))
            found = [(replaced(waiting, wholes, parts), awaited) for waiting, awaited in self.waits]
        return [*found, (added[:, 0], added[:, 1])]

    def table(self, order: Sequence[int] | IntArray) -> TaskTable:
        """Return the tasks in an order, by number; those that are not in it count as done."""
        tasks, place = self.apart(order), self.places_in(np.asarray(order, dtype=np.int64))
        waiting, awaited = (place[np.concatenate(parts)] for parts in zip(*self.all_waits(), strict=True))
        both = (waiting >= 0) & (awaited >= 0)
        return replace(tasks, after=ragged_of_pairs(waiting[both], awaited[both], len(tasks)))

    def apart(self, order: Sequence[int] | IntArray) -> TaskTable:
        """Return the tasks in an order, by number, none of which waits for another."""
        numbers = np.asarray(order, dtype=np.int64)
        kinds, works = list[Task](), list[GroupWork]()
        kind, work = np.empty_like(numbers), np.empty_like(numbers)
        for module in self.modules.values():
            own = np.flatnonzero((numbers >= module.first) & (numbers < module.first + module.size))
            local = numbers[own] - module.first
            used, like = np.unique(module.kinds_of(local), return_inverse=True)
            kind[own], work[own] = len(kinds) + like, len(works) + module.works_of(local)
            kinds += map(module.kind_task, used.tolist())
            works += module.works
        more = numbers >= self.size
        kind[more] = len(kinds) + numbers[more] - self.size
        work[more] = len(works) + numbers[more] - self.size
        kinds += [kind for kind, _ in self.added]
        works += [work for _, work in self.added]
        for number, own_kind in self.own_kinds.items():
            kind[numbers == number] = len(kinds)
            kinds.append(own_kind)
        return TaskTable(kinds, works, kind, work, ragged_of_pairs(numbers[:0], numbers[:0], len(numbers)))

    def places_in(self, order: IntArray) -> IntArray:
        """Return the place of each number in an order; −1 where it is none."""
        places: IntArray = np.full(self.size + len(self.added), -1, dtype=np.int64)
        places[order] = np.arange(len(order))
        return places


def replaced(numbers: IntArray, old: Sequence[int], new: Sequence[int]) -> IntArray:
    """Return numbers with new ones in place of old ones."""
    found: IntArray = numbers.copy()
    for one, other in zip(old, new, strict=True):
        found[numbers == one] = other
    return found
