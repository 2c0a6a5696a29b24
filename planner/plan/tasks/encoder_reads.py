"""Which passes of a stage read an encoder's outputs, and which of its passes return their gradients."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.plan.plan_file import Edge, Plan
from planner.plan.task import Phase, Task
from planner.plan.tasks.module_work import GroupWork, ModuleWork, pass_task
from planner.plan.tokens.encoder_outputs import transfer_group
from planner.specs.base import Ranks


class EdgeReads:
    """The passes of one stage of an edge's target that read its outputs: those through the stage's first layer, in
    `order`.
    """

    def __init__(self, plan: Plan, edge: Edge, target: ModuleWork, stage: int, order: Sequence[Task]) -> None:
        self.target, self.stage, self.feeds = target, stage, plan.feeds_of(edge)
        self.ahead = plan.layouts[edge.source].ahead
        self.own = [task for task in order if task.module == target.module and task.micro_batch is not None]
        # Where its last stage begins: until then its pipeline fills.
        self.full = next((at for at, task in enumerate(self.own) if task.layers[0] == target.stages[-1][0]), 0)
        begin = target.stages[stage][0]
        first = [task for task in self.own if task.layers[0] == begin]
        self.begins: dict[int | None, int] = {}  # micro-batch → place of the first pass that reads in it, among `own`
        for at, task in enumerate(self.own):
            if task.layers[0] == begin and task.phase in ("gather", "F"):
                self.begins.setdefault(task.micro_batch, at)
        self.forwards = sorted((task for task in first if task.phase == "F"), key=lambda task: task.micro_batch or 0)
        self.readers: dict[int, list[int]] = defaultdict(list)  # item → indices of the forwards that work on it
        for number, task in enumerate(self.forwards):
            for item in dict.fromkeys(task.items):
                self.readers[item].append(number)
        # Micro-batch → ids of its gather and forwards
        self.synchronised_ids: dict[int | None, list[str]] = defaultdict(list)
        self.backward_ids: dict[
            tuple[int | None, str], str
        ] = {}  # micro-batch, group → id of the pass that makes the gradient of its inputs
        self.synchronised_backward_ids: dict[int | None, list[str]] = defaultdict(list)  # micro-batch → all of them
        for task in first:
            if task.phase in ("gather", "F"):
                self.synchronised_ids[task.micro_batch].append(task.id)
            elif task.phase in ("B", "I"):
                self.backward_ids[task.micro_batch, task.group] = task.id
                self.synchronised_backward_ids[task.micro_batch].append(task.id)

    def of(self, c: GroupWork) -> "EncoderRead | None":
        """Return what the target reads of a group's work; None: nothing."""
        indices = [index for index, item in enumerate(c.items) if self.feeds.get(item)]
        fed = {reader for index in indices for reader in self.feeds[c.items[index]]}
        numbers = sorted({number for item in fed for number in self.readers[item]})
        if not numbers:
            return None
        forwards = [self.forwards[number] for number in numbers]
        back = [
            self.backward_ids[key] for task in forwards if (key := (task.micro_batch, task.group)) in self.backward_ids
        ]
        ranks = Ranks(sorted({rank for task in forwards for rank in task.ranks}))
        cell, blocked = with_items(c, indices), self.blocked_ids(forwards)
        before, behind = blocked | self.earlier_ids(forwards), self.last_ids(forwards, back)
        return EncoderRead(self.target, self.stage, ranks, cell, blocked, before, tuple(back), behind)

    def blocked_ids(self, forwards: Sequence[Task]) -> set[str]:
        """Return the ids of these forwards; and where all ranks of the target's stage synchronise in a micro-batch, of
        its gather and all its forwards: none of them can end before the readers have the outputs.
        """
        if not self.target.syncs_each_micro_batch:
            return {task.id for task in forwards}
        return {
            id for micro_batch in {task.micro_batch for task in forwards} for id in self.synchronised_ids[micro_batch]
        }

    def earlier_ids(self, forwards: Sequence[Task]) -> set[str]:
        """Return the id of the pass that the encoder's forward precedes as well, as it runs ahead of these: the first
        of so many micro-batches before. But of none while the pipeline fills, or its first stages would begin later
        and then wait longer: in its place the first of the last stage, at which the others begin to wait. What is
        ahead of all micro-batches is a phase before the pipeline.
        """
        if self.ahead >= len(self.target.micro_batches):
            return {self.own[0].id}
        read = min(task.micro_batch or 0 for task in forwards)
        begin = next((self.begins[m] for m in range(max(0, read - self.ahead), read) if m in self.begins), None)
        return set() if begin is None else {self.own[max(begin, self.full)].id}

    def last_ids(self, forwards: Sequence[Task], back: Sequence[str]) -> set[str]:
        """Return the ids of the passes behind which no gradient of the outputs is missing; where all ranks of the
        target's stage synchronise in a micro-batch, those of all groups, which stay together.
        """
        if not self.target.syncs_each_micro_batch:
            return set(back)
        return {id for task in forwards for id in self.synchronised_backward_ids.get(task.micro_batch, ())}


@dataclass(frozen=True, slots=True)
class EncoderRead:
    """What a module reads of one group's work in an encoder."""

    target: ModuleWork
    stage: int  # of the target
    ranks: Ranks  # of the forwards that read
    cell: GroupWork  # with only the items that are read
    blocked_ids: set[str]  # ids of tasks that cannot end before the outputs arrive
    before_ids: set[str]  # these, and ids of earlier ones that the encoder's forward precedes too
    backward_ids: tuple[str, ...]  # ids of the passes that make their gradients
    behind_ids: set[str]  # these, and ids of what runs together with them

    def transfer(self, source: ModuleWork, of: Phase) -> tuple[Task, Task]:
        """Return the send and recv of outputs from the source's last stage to those who read them, or of their
        gradients (`of`: B) in the other direction.
        """
        source_task = pass_task(source, len(source.stages) - 1, of, self.cell)
        name = transfer_group(self.cell.group, self.target.module, self.stage)
        send_ranks, recv_ranks = (source_task.ranks, self.ranks) if of == "F" else (self.ranks, source_task.ranks)
        after = (source_task.id,) if of == "F" else self.backward_ids
        send = source_task.on_group(name, send_ranks).as_transfer("send", of, recv_ranks, after)
        recv = source_task.on_group(name, recv_ranks).as_transfer("recv", of, send_ranks, (send.id,))
        return send, recv


def with_items(c: GroupWork, indices: Sequence[int]) -> GroupWork:
    """Return a group's work restricted to the items at these indices."""
    if len(indices) == len(c.items):
        return c
    items, sizes = (tuple(each[index] for index in indices) for each in (c.items, c.sizes))
    offload = tuple(c.offload[index] for index in indices) if c.offload else ()
    parts = tuple(c.parts[index] for index in indices) if c.parts else ()
    return replace(c, items=items, sizes=sizes, offload=offload, parts=parts)
