"""The tasks of a step as columns: of a million of them none is an object until somebody looks at one.

A task is of a kind, all that it has in common with those of other micro-batches (module, layers, phase, group, ranks),
on the work of its group in a micro-batch (items and their sizes). Both stand once and are named by number; what a task
waits for is named by its place in the table.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.plan.task import Task, task_id
from planner.plan.tasks.ragged_array import IntArray, RaggedArray, ragged
from planner.specs.base import Ranks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupWork:
    """The work of one group on one module in one micro-batch. A group without items is an idle rank, or all ranks of a
    stage in a collective; without a micro-batch, in one that runs once a step.
    """

    micro_batch: int | None
    group: str
    ranks: Ranks
    items: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    degree: int = 1
    share: float = 1.0
    ring: int = 1
    offload: tuple[float, ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class TaskTable(Sequence[Task]):
    """Tasks in an order that every rank follows; as a sequence, the tasks themselves, made when one is asked for."""

    kinds: Sequence[Task]  # tasks whose items, micro-batch and waits do not count
    works: Sequence[GroupWork]
    kind: IntArray  # (n,)
    work: IntArray  # (n,)
    after: RaggedArray  # places that must end before each starts

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> "TaskTable":
        """Return the table of tasks that were made one by one; awaited ids that are none of theirs count as done."""
        if isinstance(tasks, TaskTable):
            return tasks
        places = {task.id: place for place, task in enumerate(tasks)}
        works = [
            GroupWork(t.micro_batch, t.group, t.ranks, t.items, t.sizes, t.degree, t.share, t.ring, t.offload, t.parts)
            for t in tasks
        ]
        each, after = np.arange(len(works)), [[places[a] for a in task.after if a in places] for task in tasks]
        table = cls(tasks, works, each, each, ragged(after))
        table.__dict__["tasks"] = tuple(tasks)
        return table

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, at: Any) -> Any:
        return self.tasks[at]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskTable) and self.tasks == other.tasks

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def ids(self) -> list[str]:
        """The id of each task."""
        return [
            task_id(k.module, k.layers, k.phase, w.micro_batch, k.group, k.of)
            for k, w in self.kinds_and_works(range(len(self)))
        ]

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks as objects."""
        ids, each = self.ids, self.kinds_and_works(range(len(self)))
        return tuple(
            task_on(kind, work, tuple(ids[place] for place in waits), id)
            for (kind, work), waits, id in zip(each, self.after.lists(), ids, strict=True)
        )

    def kinds_and_works(self, places: Iterable[int]) -> Iterator[tuple[Task, GroupWork]]:
        """Yield the kind of each of these places, and its work."""
        kind, work = self.kind.tolist(), self.work.tolist()
        return ((self.kinds[kind[place]], self.works[work[place]]) for place in places)

    def task(self, place: int) -> Task:
        """Return a task as an object, without what it waits for."""
        return task_on(self.kinds[self.kind[place]], self.works[self.work[place]])

    def column(self, of: Callable[[Task], Any], dtype: Any = None) -> NDArray[Any]:
        """Return something of each task's kind, (n,)."""
        return np.array([of(kind) for kind in self.kinds], dtype=dtype)[self.kind]

    def where(self, which: Callable[[Task], bool]) -> IntArray:
        """Return the places whose kinds are such."""
        return np.flatnonzero(self.column(which, np.bool_))

    @cached_property
    def micro_batch(self) -> IntArray:
        """The micro-batch of each task, (n,); −1: it runs once a step."""
        return np.array([-1 if w.micro_batch is None else w.micro_batch for w in self.works], dtype=np.int64)[self.work]

    def reordered(self, places: IntArray) -> "TaskTable":
        """Return the table with its places in another order."""
        every = np.arange(len(places))
        if (places == every).all():
            return self
        at = np.empty_like(places)
        at[places] = every
        after = self.after.gathered(places)
        return TaskTable(
            self.kinds, self.works, self.kind[places], self.work[places], RaggedArray(after.offsets, at[after.values])
        )

    def alike(
        self, places: IntArray, kinds: Callable[[Task], Hashable], works: Callable[[GroupWork], Hashable]
    ) -> tuple[list[int], IntArray]:
        """Return places that stand for all of some, and of each the place of the one that stands for it: one with an
        equal key of its kind and an equal key of its work.
        """
        kind, work = (
            numbered_where(self.kind[places], self.kinds, kinds),
            numbered_where(self.work[places], self.works, works),
        )
        both = kind * (1 + work.max(initial=0)) + work
        _, first, like = np.unique(both, return_index=True, return_inverse=True)
        return places[first].tolist(), like


def task_on(kind: Task, work: GroupWork, after: tuple[str, ...] = (), id: str = "") -> Task:
    """Return the task of a kind on some work."""
    return Task(
        kind.module, kind.layers, kind.phase, work.micro_batch, kind.group, kind.ranks, work.sizes, work.items,
        kind.degree, kind.share, kind.ring, work.offload, kind.of, kind.peers, after, work.parts, kind.beside, id,
    )  # fmt: skip


def numbered(keys: Sequence[Hashable]) -> IntArray:
    """Return a number for each key, the same for equal ones."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def numbered_where(places: IntArray, things: Sequence[T], key: Callable[[T], Hashable]) -> IntArray:
    """Return a number for the thing at each place, the same for those with equal keys."""
    used, like = np.unique(places, return_inverse=True)
    return numbered([key(things[at]) for at in used.tolist()])[like]
