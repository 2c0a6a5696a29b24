"""The order of modules that feed no other, before tasks of encoders are inserted, and what it is made from.

Plans that differ in encoders alone have the same one, and a search makes many of these one after another. Where they
differ in which items their groups have as well, tasks have other items in the same order.

The order has nominal times: when tasks would run if a forward took one unit of time, a backward two, and all else,
encoders too, none. Before anything is priced, this says which passes of different ranks run side by side, and so where
a task of an encoder holds up no pass: in front of what its ranks do when it is needed, behind what they do when its
gradient comes. With an encoder that takes no time the step is as long as without it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any

from planner.plan.mesh.identical_groups import EquivalentRanks
from planner.plan.plan_file import Layout, Step
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.plan.tasks.merge_orders import first_of_unit, merge_orders, topological_order
from planner.plan.tasks.module_work import GroupWork, ModuleWork, stage_tasks, task_of

NOMINAL_DURATIONS: Mapping[Phase, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
NominalTimes = Mapping[str, tuple[float, float]]  # id → start and end


def in_nominal_order(
    order: Sequence[Task], synchronised: Mapping[str, Collection[Phase]]
) -> tuple[list[Task], NominalTimes]:
    """Return tasks by their times, those of each rank in their order, and these times; what runs once a step has none,
    and comes last. `synchronised`: by module, the phases whose passes of one micro-batch and stage start together.
    """
    order = topological_order(order, synchronised)
    together: dict[int, list[Task]] = defaultdict(list)
    for task, first in zip(order, first_of_unit(order, synchronised), strict=True):
        together[first].append(task)
    alike = EquivalentRanks(task.ranks for task in order)
    free: dict[int, float] = defaultdict(float)
    times: dict[str, tuple[float, float]] = {}
    for tasks in together.values():
        if tasks[0].micro_batch is None:
            continue
        awaited = [times[id][1] for task in tasks for id in task.after if id in times]
        start = max([*awaited, *(free[rank] for task in tasks for rank in alike.of(task.ranks))], default=0.0)
        for task in tasks:
            end = start + NOMINAL_DURATIONS.get(task.phase, 0.0)
            times[task.id] = start, end
            free.update(dict.fromkeys(alike.of(task.ranks), end))
    nothing = (inf, inf)
    return sorted(order, key=lambda task: times.get(task.id, nothing)[0]), times


class NominalOrder:
    """An order of tasks by their times. Tasks of encoders, which have none, are when what is behind the last one before
    them is.
    """

    def __init__(self, order: Sequence[Task], times: NominalTimes) -> None:
        self.order, self.alike = order, EquivalentRanks(task.ranks for task in order)
        self.starts: list[float] = []
        self.ends: dict[str, float] = {}
        self.passes: dict[int, list[tuple[float, int]]] = defaultdict(list)  # rank → ends and positions of its passes
        now = 0.0
        for position, task in enumerate(order):
            start, end = times.get(task.id, (now, now)) if task.micro_batch is not None else (inf, inf)
            now = max(now, start)
            self.starts.append(now)
            self.ends[task.id] = end
            if task.id in times and task.phase in NOMINAL_DURATIONS:
                for rank in self.alike.of(task.ranks):
                    self.passes[rank].append((end, position))

    def running(self, ranks: Iterable[int], position: int) -> int:
        """Return the position in front of the passes that these ranks run when the task at `position` starts, or then
        start; at most that position.
        """
        now = self.starts[position] if position < len(self.starts) else inf
        found = [position]
        for rank in self.alike.among(ranks):
            own = self.passes.get(rank, [])
            at = bisect_left(own, (now, len(self.order)))  # behind those that have ended by then
            found += [own[at][1]] if at < len(own) else []
        return min(found)

    def behind(self, ids: Iterable[str]) -> int:
        """Return the position in front of all that starts when these tasks of the order have ended."""
        return bisect_left(self.starts, max(self.ends[id] for id in ids))


COLLECTIVES = ("gather", "sync", "update")  # of all ranks of a stage, whatever their items
KEPT = 3  # orders, of up to a million tasks each
Slots = list[list[Slot]]  # of each pipeline rank


@dataclass(frozen=True, slots=True)
class ReadersOrder:
    """What runs in micro-batches of modules that feed no other."""

    works: dict[str, ModuleWork]
    slots: dict[str, Slots]
    tasks: list[Task]
    times: NominalTimes

    def decided(self, name: str) -> tuple[Layout, Any]:
        """Return the layout of a module and the items of its groups."""
        return self.works[name].layout, self.works[name].micro_batches

    def with_items_of(self, works: dict[str, ModuleWork]) -> "ReadersOrder":
        """Return the order of works whose groups have other items in the same micro-batches."""
        cells: dict[tuple[str, int | None, str], GroupWork] = {}
        for name, work in works.items():
            for c in chain.from_iterable(work.micro_batches):
                cells[name, c.micro_batch, c.group] = c
        tasks = [
            task if task.phase in COLLECTIVES else task_of(cells[task.module, task.micro_batch, task.group], task)
            for task in self.tasks
        ]
        return ReadersOrder(works, self.slots, tasks, self.times)


class LastReaders:
    """The orders that were made last, each with all that it follows from but for the items of groups; the last first. A
    search goes back and forth between few layouts of readers.
    """

    def __init__(self) -> None:
        self.kept: list[tuple[list[Any], ReadersOrder]] = []

    def order_of(
        self, works: dict[str, ModuleWork], step: Step, synchronised: Mapping[str, Collection[Phase]]
    ) -> ReadersOrder:
        """Return the order of these works, of modules that feed no other: a kept one, if it follows from the same."""
        source = [
            (name, step.order_of(name), synchronised.get(name), *work.order_source) for name, work in works.items()
        ]
        found = next((order for of, order in self.kept if of == source), None)
        others = [(of, order) for of, order in self.kept if order is not found]
        if found is None:
            found = readers_order(works, step, synchronised)
        elif any((work.layout, work.micro_batches) != found.decided(name) for name, work in works.items()):
            found = found.with_items_of(works)
        self.kept = [(source, found), *others[: KEPT - 1]]
        return found


def readers_order(
    works: dict[str, ModuleWork], step: Step, synchronised: Mapping[str, Collection[Phase]]
) -> ReadersOrder:
    """Return the order that merges the tasks of works with schedules of their own, with its nominal times."""
    slots = {name: work.slots(step.order_of(name)) for name, work in works.items()}
    tasks = merged_tasks(works, slots)
    return ReadersOrder(works, slots, *in_nominal_order(tasks, synchronised))


def merged_tasks(works: Mapping[str, ModuleWork], slots: Mapping[str, Slots]) -> list[Task]:
    """Return the tasks of works with schedules of their own, merged into one order."""
    return merge_orders([own for name, of_ranks in slots.items() for own in stage_tasks(works[name], of_ranks)])
