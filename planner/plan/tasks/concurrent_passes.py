"""Which passes run concurrently with a step's collectives, and with passes that share their devices.

Under ZeRO-3 a micro-batch's all-gather runs beside its forward, and its reduce-scatter beside its backward. Of what is
exchanged once a step, the reduction runs beside the last backwards, and the all-gather after the update beside the
first forwards of the next step. A pass with a share of its devices runs beside every other pass with a share of them.
This follows from the plan alone: overlap and contention are priced before anything is simulated.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.plan.task import Task

Passes = tuple[Task, ...]  # passes of one group, one after another
ConcurrentGroups = tuple[Passes, ...]  # groups that run concurrently, in one micro-batch or a whole step
FORWARD_PHASES, BACKWARD_PHASES = ("F",), ("B", "I", "W")
PASS_PHASES = (*FORWARD_PHASES, *BACKWARD_PHASES)
EXCHANGE_PHASES = ("gather", "sync")


class ConcurrentPasses:
    """The passes that run concurrently with each task of one step."""

    def __init__(self, tasks: Sequence[Task], left_out: int = 0) -> None:
        self.left_out = left_out  # micro-batches of the step that are like the last, and not among the tasks
        self.passes: dict[tuple[str, int], dict[tuple[str, int], list[Task]]] = defaultdict(lambda: defaultdict(list))
        for task in tasks:
            if task.micro_batch is not None and task.items and task.phase in PASS_PHASES:
                place = task.group, task.ranks[0]  # a group has one entry for each stage
                self.passes[task.module, task.micro_batch][place].append(task)
        # Module, group → its passes with a share
        self.sharing_groups: dict[tuple[str, str], list[Task]] = defaultdict(list)
        for task in tasks:
            if task.share < 1 and task.items and task.phase in PASS_PHASES:
                self.sharing_groups[task.module, task.group].append(task)
        self.micro_batches: dict[str, list[int]] = defaultdict(list)
        for module, micro_batch in sorted(self.passes):
            self.micro_batches[module].append(micro_batch)

    def beside(self, task: Task) -> tuple[ConcurrentGroups, ...]:
        """Return the passes beside a task, by micro-batch; empty where nothing concurrent changes its duration."""
        if task.phase in EXCHANGE_PHASES:
            return self.overlapped_passes(task)
        return self.sharing_passes(task) if task.share < 1 and task.phase in PASS_PHASES else ()

    def sharing_passes(self, task: Task) -> tuple[ConcurrentGroups, ...]:
        """Return all passes of other groups with a share of one of the task's ranks, whenever they run."""
        others = (passes for group, passes in self.sharing_groups.items() if group != (task.module, task.group))
        overlapping = (tuple(p for p in passes if not set(task.ranks).isdisjoint(p.ranks)) for passes in others)
        concurrent = tuple(passes for passes in overlapping if passes)
        return (concurrent,) if concurrent else ()

    def overlapped_passes(self, task: Task) -> tuple[ConcurrentGroups, ...]:
        """Return the passes beside a gather or sync: of its micro-batch, or of every one where it runs once a step."""
        forward = task.phase == "gather"
        numbers = self.micro_batches[task.module] if task.micro_batch is None else [task.micro_batch]
        overlapping = (
            self.passes_in(task, number, FORWARD_PHASES if forward else BACKWARD_PHASES) for number in numbers
        )
        found = tuple(passes for passes in overlapping if passes)
        return found if task.micro_batch is not None else found + found[-1:] * self.left_out

    def passes_in(self, task: Task, number: int, phases: Sequence[str]) -> ConcurrentGroups:
        """Return the passes of these phases in micro-batch `number` on the layers and ranks of a task."""
        layers, first, last = set(task.layers), task.ranks[0], task.ranks[-1]
        groups = self.passes.get((task.module, number), {}).items()
        on_ranks = (passes for (_, rank), passes in groups if first <= rank <= last)
        found = (tuple(p for p in passes if p.phase in phases and layers.issuperset(p.layers)) for passes in on_ranks)
        return tuple(passes for passes in found if passes)
