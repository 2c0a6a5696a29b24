"""The prices of the tasks of a step, each beside what runs concurrently with it, of its module and of others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.costs.cost_lines import Cost
from planner.costs.pricing import Pricing
from planner.costs.side_by_side import SideBySide
from planner.plan.task import Phase, Task
from planner.plan.tasks.concurrent_passes import EXCHANGE_PHASES, ConcurrentPasses
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.task_table import TaskTable, numbered

BY_THEMSELVES: tuple[Phase, ...] = ("gather", "sync", "update", "offload", "loss")  # prices beside whatever runs then


@dataclass(frozen=True)
class StepPrices:
    """The prices of the tasks of a step."""

    pricing: Pricing
    passes: ConcurrentPasses

    def __call__(self, task: Task) -> Cost:
        """The price of a task beside the others."""
        return self.beside_modules[task.id] if task.id in self.beside_modules else self.alone(task)

    def alone(self, task: Task) -> Cost:
        """The price of a task beside the others of its module."""
        every = task.micro_batch is None and self.pricing.beside_every_micro_batch(task)
        return self.pricing.price(task, self.passes.beside(task, every))

    def each(self, tasks: TaskTable) -> list[Cost]:
        """The prices of all tasks, found once for those that are alike."""
        costs = self.each_alone(tasks)
        for place, cost in self.changed(tasks, costs).items():
            costs[place] = cost
        return costs

    def changed(self, tasks: TaskTable, costs: Sequence[Cost]) -> dict[int, Cost]:
        """Place → cost of the tasks that take more or less time beside other modules on their ranks."""
        if len({kind.module for kind in tasks.kinds}) < 2:
            return {}
        waited, unplaced = self.pricing.waited_shares
        return SideBySide(tasks, costs, waited, unplaced).changed()

    @cached_property
    def beside_modules(self) -> dict[str, Cost]:
        """The same by the tasks' ids."""
        tasks = self.passes.tasks
        several = len({kind.module for kind in tasks.kinds}) > 1
        found = self.changed(tasks, self.each_alone(tasks)) if several else {}
        return {tasks.ids[place]: cost for place, cost in found.items()}

    def each_alone(self, tasks: TaskTable) -> list[Cost]:
        """The prices of all tasks beside the others of their modules."""
        found = np.empty(len(tasks), dtype=object)
        alone = tasks.column(
            lambda kind: kind.phase in BY_THEMSELVES or (kind.share < 1 and kind.stream == "compute"), np.bool_
        )
        places, divided = np.flatnonzero(~alone), any(work.parts for work in tasks.works)
        first, like = tasks.alike(places, lambda kind: self.pricing.kind_key(kind, divided), self.pricing.work_key)
        found[places] = np.array([self.alone(tasks.task(place)) for place in first], dtype=object)[like]
        works = numbered([self.pricing.work_key(work) for work in self.passes.tasks.works])
        known: dict[tuple[object, ...], Cost] = {}
        for place in np.flatnonzero(alone).tolist():
            key = self.exchange_key(tasks, place, works)
            if key not in known:
                known[key] = self.alone(tasks.task(place))
            found[place] = known[key]
        costs: list[Cost] = found.tolist()
        return costs

    def exchange_key(self, tasks: TaskTable, place: int, works: IntArray) -> tuple[object, ...]:
        """All that the price of an exchange in a micro-batch depends on; of any other task, which it is. `works`: of
        each work, a number for its key.
        """
        kind, micro_batch = int(tasks.kind[place]), int(tasks.micro_batch[place])
        if micro_batch < 0 or tasks.kinds[kind].phase not in EXCHANGE_PHASES:
            return (place,)
        return kind, micro_batch > 0, *self.passes.signature(tasks.kinds[kind].module, micro_batch, works)


def step_prices(pricing: Pricing, tasks: Sequence[Task]) -> StepPrices:
    """The price of each of these tasks of a step, given the tasks of the step that run concurrently with it."""
    return StepPrices(pricing, ConcurrentPasses(TaskTable.of(tasks)))
