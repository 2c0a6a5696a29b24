"""Which passes run concurrently with a step's collectives, and with passes that share their devices.

Under ZeRO-3 a micro-batch's all-gather runs beside its forward, and its reduce-scatter beside its backward. Of what is
exchanged once a step, the reduction runs beside the last backwards, and the all-gather after the update beside the
first forwards of the next step. A pass with a share of its devices runs beside every other pass with a share of them.
This follows from the plan alone: overlap and contention are priced before anything is simulated.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from planner.plan.task import PASS_PHASES, Task
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.task_table import TaskTable, numbered_where

Passes = tuple[Task, ...]  # passes of one group, one after another
ConcurrentGroups = tuple[Passes, ...]  # groups that run concurrently, in one micro-batch or a whole step
FORWARD_PHASES, BACKWARD_PHASES = PASS_PHASES[:1], PASS_PHASES[1:]
EXCHANGE_PHASES = ("gather", "sync")


class ConcurrentPasses:
    """The passes that run concurrently with each task of one step."""

    def __init__(self, tasks: TaskTable) -> None:
        self.tasks = tasks
        passes = tasks.column(lambda kind: kind.phase in PASS_PHASES, np.bool_)
        busy = np.array([bool(work.items) for work in tasks.works], dtype=np.bool_)[tasks.work]
        places = np.flatnonzero(passes & busy)
        of_steps = numbered_where(tasks.kind[places], tasks.kinds, lambda kind: kind.module)
        rising = np.lexsort((places, tasks.micro_batch[places], of_steps))
        ends = np.flatnonzero(np.diff(of_steps[rising]) | np.diff(tasks.micro_batch[places[rising]])) + 1
        # Module, micro-batch → places of its passes
        self.places = {self.micro_batch_of(each[0]): each for each in np.split(places[rising], ends) if len(each)}
        self.known: dict[tuple[str, int], tuple[Passes, ...]] = {}

    def micro_batch_of(self, place: int) -> tuple[str, int]:
        """Return the module of a task, and its micro-batch."""
        return self.tasks.kinds[self.tasks.kind[place]].module, int(self.tasks.micro_batch[place])

    def signature(self, module: str, micro_batch: int, works: IntArray) -> tuple[bytes, bytes]:
        """Return what passes of a micro-batch run; `works`: of each work, a number that equal ones share."""
        places = self.places.get((module, micro_batch), np.zeros(0, dtype=np.int64))
        return self.tasks.kind[places].tobytes(), works[self.tasks.work[places]].tobytes()

    @cached_property
    def sharing_groups(self) -> dict[tuple[str, str], list[Task]]:
        """Module, group → its passes with a share of their devices."""
        found: dict[tuple[str, str], list[Task]] = defaultdict(list)
        for place in np.sort(np.concatenate([*self.places.values()])).tolist() if self.places else ():
            kind = self.tasks.kinds[self.tasks.kind[place]]
            if kind.share < 1:
                found[kind.module, kind.group].append(self.tasks.task(place))
        return found

    def by_group(self, module: str, micro_batch: int) -> tuple[Passes, ...]:
        """Return the passes of a micro-batch by group, of which each stage has its own."""
        key = module, micro_batch
        if key not in self.known:
            groups: dict[tuple[str, int], list[Task]] = defaultdict(list)
            for task in map(self.tasks.task, self.places[key].tolist() if key in self.places else ()):
                groups[task.group, task.ranks[0]].append(task)
            self.known[key] = tuple(map(tuple, groups.values()))
        return self.known[key]

    def beside(self, task: Task, every: bool = True) -> tuple[ConcurrentGroups, ...]:
        """Return the passes beside a task, by micro-batch; empty where nothing concurrent changes its duration.
        `every`: of what runs once a step, those of all micro-batches, and not only of the first or last it runs beside.
        """
        if task.phase in EXCHANGE_PHASES:
            return self.overlapped_passes(task, every)
        return self.sharing_passes(task) if task.share < 1 and task.phase in PASS_PHASES else ()

    def sharing_passes(self, task: Task) -> tuple[ConcurrentGroups, ...]:
        """Return all passes of other groups with a share of one of the task's ranks, whenever they run."""
        others = (passes for group, passes in self.sharing_groups.items() if group != (task.module, task.group))
        overlapping = (tuple(p for p in passes if not set(task.ranks).isdisjoint(p.ranks)) for passes in others)
        concurrent = tuple(passes for passes in overlapping if passes)
        return (concurrent,) if concurrent else ()

    def overlapped_passes(self, task: Task, every: bool) -> tuple[ConcurrentGroups, ...]:
        """Return the passes beside a gather or sync: of its micro-batch, or of others where it runs once a step."""
        forward = task.phase == "gather"
        numbers = [number for module, number in self.places if module == task.module]
        if task.micro_batch is not None:
            numbers = [task.micro_batch]
        each = (
            self.passes_in(task, number, FORWARD_PHASES if forward else BACKWARD_PHASES)
            for number in (numbers if every or forward else reversed(numbers))
        )
        found = (passes for passes in each if passes)
        if task.micro_batch is not None or not every:
            return tuple(islice(found, 1))
        return tuple(found)

    def passes_in(self, task: Task, number: int, phases: Sequence[str]) -> ConcurrentGroups:
        """Return the passes of these phases in micro-batch `number` on the layers and ranks of a task."""
        layers, first, last = set(task.layers), task.ranks[0], task.ranks[-1]
        on_ranks = (passes for passes in self.by_group(task.module, number) if first <= passes[0].ranks[0] <= last)
        found = (tuple(p for p in passes if p.phase in phases and layers.issuperset(p.layers)) for passes in on_ranks)
        return tuple(passes for passes in found if passes)
