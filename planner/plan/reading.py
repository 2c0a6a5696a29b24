"""Which passes of a module read what another gives, and which of them bring the gradients back."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.plan.model import Edge, Plan
from planner.plan.task import Phase, Task
from planner.plan.work import Cell, Work, cell_task


class Reading:
    """Of one edge: the passes through the first layer of its target, as `order` has them."""

    def __init__(self, plan: Plan, edge: Edge, target: Work, order: Sequence[Task]) -> None:
        self.target, self.feeds = target, plan.feeds_of(edge)
        first = [task for task in order if task.module == target.module and not task.layers[0]]
        self.forwards = sorted((task for task in first if task.phase == "F"), key=lambda task: task.micro_batch or 0)
        self.readers: dict[int, list[int]] = defaultdict(list)  # item → forwards that have it
        for number, task in enumerate(self.forwards):
            for item in dict.fromkeys(task.items):
                self.readers[item].append(number)
        self.met: dict[int | None, list[str]] = defaultdict(list)  # micro-batch → its gather and forwards
        self.back: dict[tuple[int | None, str], str] = {}  # micro-batch, group → what brings the gradient of its inputs
        for task in first:
            if task.phase in ("gather", "F"):
                self.met[task.micro_batch].append(task.id)
            elif task.phase in ("B", "I"):
                self.back[task.micro_batch, task.group] = task.id

    def of(self, c: Cell) -> "Read | None":
        """What is read of a cell, if anything is."""
        kept = [at for at, item in enumerate(c.items) if self.feeds.get(item)]
        fed = {reader for at in kept for reader in self.feeds[c.items[at]]}
        numbers = sorted({number for item in fed for number in self.readers[item]})
        if not numbers:
            return None
        forwards = [self.forwards[number] for number in numbers]
        back = [self.back[key] for task in forwards if (key := (task.micro_batch, task.group)) in self.back]
        return Read(self.target, part(c, kept), self.meeting(forwards), tuple(back))

    def meeting(self, forwards: Sequence[Task]) -> set[str]:
        """These; and where all ranks of the target's stage meet in a micro-batch, its gather and its passes: none of
        them ends before a reader has what it reads.
        """
        if not self.target.meets:
            return {task.id for task in forwards}
        return {id for row in {task.micro_batch for task in forwards} for id in self.met[row]}


@dataclass(frozen=True, slots=True)
class Read:
    """What a module reads of one cell of another."""

    target: Work
    cell: Cell  # with the items that are read
    held_up: set[str]  # what cannot end before it is there
    back: tuple[str, ...]  # what brings its gradients

    def transfer(self, source: Work, of: Phase) -> tuple[Task, Task]:
        """Outputs from the source's last stage to the target's first, or their gradients back."""
        near = cell_task(source, len(source.stages) - 1, of, self.cell)
        far = self.target.stage_ranks(0, self.target.layout.ranks)
        name = f"{self.cell.group}>{self.target.module}"
        send_ranks, recv_ranks = (near.ranks, far) if of == "F" else (far, near.ranks)
        after = (near.id,) if of == "F" else self.back
        send = replace(near, phase="send", of=of, group=name, ranks=send_ranks, peers=recv_ranks, after=after)
        recv = replace(near, phase="recv", of=of, group=name, ranks=recv_ranks, peers=send_ranks, after=(send.id,))
        return send, recv


def part(c: Cell, kept: Sequence[int]) -> Cell:
    """A cell with some of its items."""
    if len(kept) == len(c.items):
        return c
    items, sizes = (tuple(each[at] for at in kept) for each in (c.items, c.sizes))
    offload = tuple(c.offload[at] for at in kept) if c.offload else ()
    parts = tuple(c.parts[at] for at in kept) if c.parts else ()
    return replace(c, items=items, sizes=sizes, offload=offload, parts=parts)
