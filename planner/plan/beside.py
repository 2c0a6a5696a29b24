"""Which passes run beside the exchanges of a step, as the plan has it: what these can hide behind.

Under ZeRO-3 a micro-batch's gathering runs beside its forward, and its reduction beside its backward. What is exchanged
once a step, the reduction runs beside the last backwards, and the gathering behind the update beside the first
forwards of the next step. The clock is not asked: what hides is priced before anything is timed.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.plan.task import Task

Passes = tuple[Task, ...]  # one after another, of one group
Row = tuple[Passes, ...]  # of one micro-batch, group beside group
FORWARD, BACKWARD = ("F",), ("B", "I", "W")
EXCHANGES = ("gather", "sync")


class Beside:
    """Of the tasks of one step."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.passes: dict[tuple[str, int], dict[tuple[str, int], list[Task]]] = defaultdict(lambda: defaultdict(list))
        for task in tasks:
            if task.micro_batch is not None and task.items and task.phase in (*FORWARD, *BACKWARD):
                place = task.group, task.ranks[0]  # one for each stage of a group
                self.passes[task.module, task.micro_batch][place].append(task)
        self.rows: dict[str, list[int]] = defaultdict(list)
        for module, row in sorted(self.passes):
            self.rows[module].append(row)

    def of(self, task: Task) -> tuple[Row, ...]:
        """Rows of passes beside one of EXCHANGES: its micro-batch's; or once a step those of every one."""
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
