"""The order of modules that feed no other, before tasks of encoders are inserted, and what it is made from.

Plans that differ in encoders alone have the same one, and a search makes many of these one after another.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from planner.plan.plan_file import Step
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.plan.tasks.merge_orders import merge_orders
from planner.plan.tasks.module_work import ModuleWork, stage_tasks
from planner.plan.tasks.nominal_times import NominalTimes, in_nominal_order

Slots = list[list[Slot]]  # of each pipeline rank


@dataclass(frozen=True, slots=True)
class ReadersOrder:
    """What runs in micro-batches of modules that feed no other."""

    works: dict[str, ModuleWork]
    slots: dict[str, Slots]
    tasks: list[Task]
    times: NominalTimes


class LastReaders:
    """The order that was made last, and all that it follows from."""

    def __init__(self) -> None:
        self.kept: tuple[Any, ReadersOrder] | None = None

    def order_of(
        self, works: dict[str, ModuleWork], step: Step, synchronised: Mapping[str, Collection[Phase]]
    ) -> ReadersOrder:
        """Return the order of these works, of modules that feed no other: the one that was made last, where it follows
        from the same.
        """
        source = [(name, step.order_of(name), synchronised.get(name), *work.decided) for name, work in works.items()]
        if self.kept is None or self.kept[0] != source:
            self.kept = source, readers_order(works, step, synchronised)
        return self.kept[1]


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
