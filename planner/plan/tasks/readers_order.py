"""The order of modules that feed no other, before tasks of encoders are inserted, and what it is made from.

Plans that differ in encoders alone have the same one, and a search makes many of these one after another. Where they
differ in which items their groups have as well, tasks have other items in the same order.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from planner.plan.plan_file import Layout, Step
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.plan.tasks.merge_orders import merge_orders
from planner.plan.tasks.module_work import GroupWork, ModuleWork, stage_tasks, task_of
from planner.plan.tasks.nominal_times import NominalTimes, in_nominal_order

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
    """Return the order of these works, made anew."""
    slots = {name: work.slots(step.order_of(name)) for name, work in works.items()}
    tasks = merged_tasks(works, slots)
    return ReadersOrder(works, slots, *in_nominal_order(tasks, synchronised))


def merged_tasks(works: Mapping[str, ModuleWork], slots: Mapping[str, Slots]) -> list[Task]:
    """Return the tasks of works with schedules of their own, merged into one order."""
    return merge_orders([own for name, of_ranks in slots.items() for own in stage_tasks(works[name], of_ranks)])
