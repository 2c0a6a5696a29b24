"""Which passes of a stage read an encoder's outputs, and which of its passes return their gradients."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from planner.plan.plan_file import Edge, Plan, Step
from planner.plan.task import Task
from planner.plan.tasks.module_tasks import FORWARD, ModuleTasks
from planner.plan.tasks.task_inserter import TaskInserter
from planner.plan.tasks.task_table import GroupWork
from planner.plan.tokens.encoder_outputs import transfer_group
from planner.specs.base import Ranks


class ReadingPass(NamedTuple):
    """A forward that reads outputs."""

    number: int
    micro_batch: int
    group: str
    ranks: Ranks


class EdgeReads:
    """The passes of one stage of an edge's target that read its outputs: those through the stage's first layer, in the
    order of `line`.
    """

    def __init__(
        self, plan: Plan, step: Step, edge: Edge, tasks: tuple[ModuleTasks, ModuleTasks], stage: int, line: TaskInserter
    ) -> None:
        source, target = tasks
        self.source, self.target, self.stage, self.feeds = source, target, stage, plan.feeds_of(edge)
        self.draft = line.draft
        self.ahead, table, stages = step.ahead(edge.source, edge.target), line.table, target.work.stages
        places = np.flatnonzero(
            table.column(lambda kind: kind.module == edge.target, np.bool_) & (table.micro_batch >= 0)
        )
        layer = table.column(lambda kind: kind.layers[0])[places]
        self.own = line.order[places]
        # Where its last stage begins: until then its pipeline fills.
        self.full = int(np.argmax(layer == stages[-1][0])) if len(layer) else 0
        self.begins: dict[int, int] = {}  # micro-batch → place of the first pass that reads in it, among `own`
        self.forwards: list[ReadingPass] = []
        self.readers: dict[int, list[int]] = defaultdict(list)  # item → indices of the forwards that work on it
        self.synchronised: dict[int, list[int]] = defaultdict(list)  # micro-batch → its gather and forwards
        self.backwards: dict[tuple[int, str], int] = {}  # micro-batch, group → what makes the gradient of its inputs
        self.synchronised_backwards: dict[int, list[int]] = defaultdict(list)  # micro-batch → all of them
        items: list[tuple[int, ...]] = []
        first = np.flatnonzero(layer == stages[stage][0])
        for at, (kind, work) in zip(first.tolist(), table.kinds_and_works(places[first].tolist()), strict=True):
            number, micro_batch = int(self.own[at]), work.micro_batch or 0
            if kind.phase in ("gather", "F"):
                self.begins.setdefault(micro_batch, at)
                self.synchronised[micro_batch].append(number)
            if kind.phase == "F":
                self.forwards.append(ReadingPass(number, micro_batch, kind.group, kind.ranks))
                items.append(work.items)
            elif kind.phase in ("B", "I"):
                self.backwards[micro_batch, kind.group] = number
                self.synchronised_backwards[micro_batch].append(number)
        rising = sorted(range(len(items)), key=lambda at: self.forwards[at].micro_batch)
        self.forwards = [self.forwards[at] for at in rising]
        for number, at in enumerate(rising):
            for item in dict.fromkeys(items[at]):
                self.readers[item].append(number)

    def of(self, place: int) -> "EncoderRead | None":
        """Return what the target reads of a group's work, a place of the source; None: nothing."""
        c = self.source.cells[place]
        indices = [index for index, item in enumerate(c.items) if self.feeds.get(item)]
        fed = {reader for index in indices for reader in self.feeds[c.items[index]]}
        numbers = sorted({number for item in fed for number in self.readers[item]})
        if not numbers:
            return None
        forwards = [self.forwards[number] for number in numbers]
        keys = [(each.micro_batch, each.group) for each in forwards]
        back = tuple(self.backwards[key] for key in keys if key in self.backwards)
        ranks, blocked = Ranks(sorted({rank for each in forwards for rank in each.ranks})), self.blocked(forwards)
        before, behind = blocked | self.earlier(forwards), self.last(forwards, back)
        computed = self.source.number(place, len(self.source.work.stages) - 1, FORWARD)
        cell = with_items(c, indices)
        outputs, gradients = self.transfer("F", cell, ranks, (computed,)), self.transfer("B", cell, ranks, back)
        return EncoderRead(place, self.stage, outputs, gradients, blocked, before, behind)

    def transfer(self, of: Literal["F", "B"], c: GroupWork, readers: Ranks, after: tuple[int, ...]) -> tuple[int, int]:
        """Add the send and recv of outputs from the source's last stage to the ranks of who read them, or of their
        gradients (`of`: B) in the other direction; the send waits for `after`.
        """
        source, last = self.source.work, len(self.source.work.stages) - 1
        name, computed = transfer_group(c.group, self.target.work.module, self.stage), source.stage_ranks(last, c.ranks)
        send_ranks, recv_ranks = (computed, readers) if of == "F" else (readers, computed)
        send = Task(
            source.module, source.stages[last], "send", None, name, send_ranks, degree=c.degree, share=c.share,
            ring=c.ring, of=of, peers=recv_ranks,
        )  # fmt: skip
        sent = self.draft.add(send, c, after)
        recv = send.changed(phase="recv", ranks=recv_ranks, peers=send_ranks)
        return sent, self.draft.add(recv, c, (sent,))

    def blocked(self, forwards: Sequence[ReadingPass]) -> set[int]:
        """Return these forwards; and where all ranks of the target's stage synchronise in a micro-batch, its gather and
        all its forwards: none of them can end before the readers have the outputs.
        """
        if not self.target.work.syncs_each_micro_batch:
            return {each.number for each in forwards}
        return {number for micro_batch in {each.micro_batch for each in forwards}
                for number in self.synchronised[micro_batch]}  # fmt: skip

    def earlier(self, forwards: Sequence[ReadingPass]) -> set[int]:
        """Return the pass that the encoder's forward precedes as well, as it runs ahead of these: the first of so many
        micro-batches before. But of none while the pipeline fills, or its first stages would begin later and then wait
        longer: in its place the first of the last stage, at which the others begin to wait. What is ahead of all
        micro-batches is a phase before the pipeline.
        """
        if self.ahead >= len(self.target.work.micro_batches):
            return {int(self.own[0])}
        read = min(each.micro_batch for each in forwards)
        begin = next((self.begins[m] for m in range(max(0, read - self.ahead), read) if m in self.begins), None)
        return set() if begin is None else {int(self.own[max(begin, self.full)])}

    def last(self, forwards: Sequence[ReadingPass], back: Sequence[int]) -> set[int]:
        """Return the passes behind which no gradient of the outputs is missing; where all ranks of the target's stage
        synchronise in a micro-batch, those of all groups, which stay together.
        """
        if not self.target.work.syncs_each_micro_batch:
            return set(back)
        return {number for each in forwards for number in self.synchronised_backwards.get(each.micro_batch, ())}


@dataclass(frozen=True, slots=True)
class EncoderRead:
    """What a stage of a module reads of one group's work in an encoder. Tasks are named by number."""

    place: int  # of the work
    stage: int
    outputs: tuple[int, int]  # their send and recv
    gradients: tuple[int, int]  # those of their gradients
    blocked: set[int]  # tasks that cannot end before the outputs arrive
    before: set[int]  # these, and earlier ones that the encoder's forward precedes too
    behind: set[int]  # passes that make their gradients, and what runs together with them


def with_items(c: GroupWork, indices: Sequence[int]) -> GroupWork:
    """Return a group's work restricted to the items at these indices."""
    if len(indices) == len(c.items):
        return c
    items, sizes = (tuple(each[index] for index in indices) for each in (c.items, c.sizes))
    offload = tuple(c.offload[index] for index in indices) if c.offload else ()
    parts = tuple(c.parts[index] for index in indices) if c.parts else ()
    return replace(c, items=items, sizes=sizes, offload=offload, parts=parts)
