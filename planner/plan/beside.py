"""Which passes run beside the exchanges of a step, as the plan has it, and beside those that share a device.

Under ZeRO-3 a micro-batch's gathering runs beside its forward, and its reduction beside its backward. What is exchanged
once a step, the reduction runs beside the last backwards, and the gathering behind the update beside the first
forwards of the next step. Beside a pass with a share of its ranks runs whatever else has one. The clock is
not asked: what hides, and what contends, is priced before anything is timed.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.plan.task import Task

Passes = tuple[Task, ...]  # one after another, of one group
Row = tuple[Passes, ...]  # group beside group: of one micro-batch, or of a whole step
FORWARD, BACKWARD = ("F",), ("B", "I", "W")
PASSES = (*FORWARD, *BACKWARD)
EXCHANGES = ("gather", "sync")


class Beside:
    """Of the tasks of one step."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.passes: dict[tuple[str, int], dict[tuple[str, int], list[Task]]] = defaultdict(lambda: defaultdict(list))
        for task in tasks:
            if task.micro_batch is not None and task.items and task.phase in PASSES:
                place = task.group, task.ranks[0]  # one for each stage of a group
                self.passes[task.module, task.micro_batch][place].append(task)
        self.shared: dict[tuple[str, str], list[Task]] = defaultdict(list)  # of each group: those with a share
        for task in tasks:
            if task.share < 1 and task.items and task.phase in PASSES:
                self.shared[task.module, task.group].append(task)
        self.rows: dict[str, list[int]] = defaultdict(list)
        for module, row in sorted(self.passes):
            self.rows[module].append(row)

    def of(self, task: Task) -> tuple[Row, ...]:
        """Rows of passes beside a task; none where nothing that runs beside it changes what it takes."""
        if task.phase in EXCHANGES:
            return self.exchange(task)
        return self.sharers(task) if task.share < 1 and task.phase in PASSES else ()

    def sharers(self, task: Task) -> tuple[Row, ...]:
        """Of each other group with a share of one of its ranks all passes there, whenever they run."""
        others = (passes for group, passes in self.shared.items() if group != (task.module, task.group))
        near = (tuple(p for p in passes if not set(task.ranks).isdisjoint(p.ranks)) for passes in others)
        row = tuple(passes for passes in near if passes)
        return (row,) if row else ()

    def exchange(self, task: Task) -> tuple[Row, ...]:
        """Beside one of EXCHANGES: its micro-batch's; or once a step those of every one."""
        forward = task.phase == "gather"
        numbers = self.rows[task.module] if task.micro_batch is None else [task.micro_batch]
        rows = (self.row(task, number, FORWARD if forward else BACKWARD) for number in numbers)
        return tuple(row for row in rows if row)

    def row(self, task: Task, number: int, phases: Sequence[str]) -> Row:
        layers, first, last = set(task.layers), task.ranks[0], task.ranks[-1]
        groups = self.passes.get((task.module, number), {}).items()
        near = (passes for (_, rank), passes in groups if first <= rank <= last)
        found = (tuple(p for p in passes if p.phase in phases and layers.issuperset(p.layers)) for passes in near)
        return tuple(passes for passes in found if passes)
