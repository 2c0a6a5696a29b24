"""What each target of a step weighs in its loss, from the number of targets of each item on all ranks.

Where there are several tasks, the loss of each that is a module's own is the mean over the targets of its samples
alone, times its weight: so an item's targets weigh what all tasks with its sample give them.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from planner.plan.plan_file import PlanInputs
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import ItemKey
from planner.specs.workload.loss_weighting import target_weight, total_weight


class LossWeights(NamedTuple):
    """Weights of one step's targets, and what their weighted sum is divided by."""

    of_items: Mapping[ItemKey, float] | None  # of each of an item's targets; None: all are 1
    total: float

    def of_target(self, module: str, item: int) -> float:
        """Return the weight of each target of an item: 0 where it has no loss."""
        return 1.0 if self.of_items is None else self.of_items.get((module, item), 0.0)

    def within(self, task: Task) -> Mapping[int, float] | None:
        """Return, by item of a pass, the weight of each of its targets; None: all are 1."""
        return None if self.of_items is None else {item: self.of_target(task.module, item) for item in task.items}


def loss_weights(uses: PlanInputs, counts: Mapping[ItemKey, int]) -> LossWeights:
    """Return the weights of a step; `counts`: of all items whose module ends in a loss."""
    if uses.tasks:
        return LossWeights(weights_in_tasks(uses, counts), 1.0)
    of_items = {item: target_weight(uses.loss, count) for item, count in counts.items()}
    return LossWeights(None if uses.loss == "token" else of_items, total_weight(uses.loss, counts.values()))


def weights_in_tasks(uses: PlanInputs, counts: Mapping[ItemKey, int]) -> Mapping[ItemKey, float]:
    """Return the weight of each of an item's targets in the sum of all tasks' own losses."""
    found: Counter[ItemKey] = Counter()
    for task in uses.tasks.values():
        samples = [(module, sample) for module in task.modules for sample in task.samples if (module, sample) in counts]
        total = total_weight(uses.loss, [counts[item] for item in samples])
        for item in samples:
            found[item] += task.weight * target_weight(uses.loss, counts[item]) / total  # type: ignore[assignment]
    return found
