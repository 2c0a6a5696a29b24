"""The tasks of one module in one step by number, stage by stage, in the order of its schedule, and what they wait for.

A slot of the schedule (`F3` on stage 1) becomes: receive the activations, gather the parameters (ZeRO-3), compute on
every group that has items in that micro-batch, send the result on; backward likewise with gradients, then their
reduction. Where backward is split, I receives and sends, as other stages need the gradients of inputs only, and uses
the gathered parameters; W needs neither, and the reduction follows it.

Every task that a module may have has a number, made of its place (work of a group; all groups in a micro-batch; all in
the step), its stage and its code: so what waits for what is known of all at once. Which of them a step has, its order
says: of B and I, W, one is there.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.plan.mesh.synchronisation import reduces_each_micro_batch
from planner.plan.schedules import Slot
from planner.plan.task import NO_RANKS, Phase, Task
from planner.plan.tasks.module_work import ModuleWork
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.task_table import GroupWork, numbered

Waits = tuple[IntArray, IntArray]  # numbers of tasks that wait, and of those that each waits for
CODES: tuple[tuple[Phase, str], ...] = (
    ("gather", ""), ("recv", "F"), ("F", ""), ("send", "F"), ("recv", "B"), ("B", ""), ("I", ""), ("W", ""),
    ("send", "B"), ("sync", ""), ("update", ""),
)  # fmt: skip
GATHER, RECV_F, FORWARD, SEND_F, RECV_B, BACKWARD, INPUTS, WEIGHTS, SEND_B, SYNC, UPDATE = range(len(CODES))
WITHIN_STAGE = (
    (FORWARD, RECV_F), (BACKWARD, RECV_B), (INPUTS, RECV_B), (BACKWARD, FORWARD), (INPUTS, FORWARD),
    (WEIGHTS, INPUTS), (SEND_F, FORWARD), (SEND_B, BACKWARD), (SEND_B, INPUTS),
)  # fmt: skip
OF_SLOT: dict[Phase, tuple[int, ...]] = {
    "F": (RECV_F, FORWARD, SEND_F), "B": (RECV_B, BACKWARD, SEND_B), "I": (RECV_B, INPUTS, SEND_B), "W": (WEIGHTS,),
}  # fmt: skip


class ModuleTasks:
    """The tasks of one module, numbered from `first` on."""

    def __init__(self, work: ModuleWork, first: int) -> None:
        self.work, self.first = work, first
        self.cells = [c for micro_batch in work.micro_batches for c in micro_batch]
        counts = [len(micro_batch) for micro_batch in work.micro_batches]
        self.begins = np.cumsum([0, *counts]).tolist()  # of each micro-batch, its first place
        self.micro_batch_of = np.repeat(np.arange(len(counts)), counts)
        group = numbered([(c.group, c.degree, c.share, c.ring) for c in self.cells])
        self.members = [self.cells[at] for at in np.unique(group, return_index=True)[1]]  # the first of each group
        several = len(self.members)
        self.group = np.concatenate([group, np.full(len(counts), several), [several + 1]])
        everyone = [GroupWork(number, "all", work.layout.ranks) for number in (*range(len(counts)), None)]
        self.works = [*self.cells, *everyone]
        self.shape = len(self.works), len(work.stages), len(CODES)
        self.sharded = reduces_each_micro_batch(work.layout)
        self.replicated = work.reduces_gradients and not self.sharded  # gradients are reduced once a step
        self.trained = np.array([work.trains(stage) for stage in range(len(work.stages))])
        self.possible = self.possible_tasks()
        self.is_possible = self.possible.tobytes()  # of each number, quicker to ask

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(np.prod(self.shape))

    @property
    def step_place(self) -> int:
        """The place of what runs once a step, whose stages are pipeline ranks."""
        return len(self.works) - 1

    @cached_property
    def numbers(self) -> IntArray:
        """The numbers of all tasks, (places, stages, codes)."""
        return self.first + np.arange(self.size).reshape(self.shape)

    def number(self, place: int, stage: int, code: int) -> int:
        """Return the number of a task."""
        return self.first + (place * self.shape[1] + stage) * len(CODES) + code

    def possible_tasks(self) -> NDArray[np.bool_]:
        """Whether each number is of a task in micro-batches that some order has, (places, stages, codes). Work without
        items has nothing to send, and an idle rank is on one stage only.
        """
        count, stages = len(self.cells), range(self.shape[1])
        held = [[bool(self.work.stage_ranks(stage, c.ranks)) for stage in stages] for c in self.members]
        mine = np.array(held, dtype=np.bool_).reshape(-1, self.shape[1])[self.group[:count]]
        back = np.array([self.work.has_backward(stage) for stage in stages])
        items = mine & np.array([bool(c.items) for c in self.cells], dtype=np.bool_)[:, None]
        last, returned = len(stages) - 1, items & back
        found = np.zeros(self.shape, dtype=np.bool_)
        of_groups = found[:count]
        of_groups[:, 1:, RECV_F], of_groups[:, :last, SEND_F] = items[:, 1:], items[:, :last]
        of_groups[:, :last, RECV_B], of_groups[:, 1:, SEND_B] = returned[:, :last], returned[:, 1:] & back[:-1]
        of_groups[..., FORWARD], of_groups[..., WEIGHTS] = mine, mine & self.trained
        of_groups[..., BACKWARD] = of_groups[..., INPUTS] = mine & back
        busy = np.diff(self.begins)[:, None] > 0
        found[count:-1, :, GATHER], found[count:-1, :, SYNC] = busy & self.sharded, busy & back & self.sharded
        return found

    def of_group(self, stage: int, phase: Phase, place: int) -> list[int]:
        """Return the recv, the pass and the send of one group on one stage."""
        begin = self.number(place, stage, 0)
        return [begin + code for code in OF_SLOT[phase] if self.is_possible[begin - self.first + code]]

    def of_slot(self, stage: int, phase: Phase, micro_batch: int) -> list[int]:
        """Return the tasks on a stage of one slot of the schedule, in order."""
        all_groups = self.number(len(self.cells) + micro_batch, stage, 0)
        gathers, syncs = (self.is_possible[all_groups - self.first + code] for code in (GATHER, SYNC))
        found = [all_groups + GATHER] if gathers and phase == "F" else []
        begin, codes, possible, first = self.number(0, stage, 0), OF_SLOT[phase], self.is_possible, self.first
        stride = self.shape[1] * len(CODES)
        for place in range(self.begins[micro_batch], self.begins[micro_batch + 1]):
            at = begin + place * stride
            found += [at + code for code in codes if possible[at + code - first]]
        reduced = phase == "B" or (phase == "W" and self.trained[stage]) or (phase == "I" and not self.trained[stage])
        return [*found, all_groups + SYNC] if syncs and reduced else found

    def in_slots(self, slots: Sequence[Sequence[Slot]], first: int = 0) -> list[list[int]]:
        """Return, by pipeline rank from the `first` on, its tasks in the order of its slots."""
        pipeline = self.work.pipeline_ranks
        return [
            [
                number
                for phase, micro_batch, chunk in of_rank
                for number in self.of_slot(chunk * pipeline + pipeline_rank, phase, micro_batch)
            ]
            for pipeline_rank, of_rank in enumerate(slots, first)
        ]

    def closings(self, slots: Sequence[Sequence[Slot]] | None) -> list[int]:
        """Return what runs once a step: reduction of gradients that no micro-batch reduced, update, all-gather of
        weights that the update sharded. Pipeline ranks with forwards only have nothing to update; nor have those whose
        weights are frozen. `slots`: None where passes have no schedule of their own.
        """
        found: list[int] = []
        for rank in range(self.work.pipeline_ranks):
            own = slots[rank] if slots is not None else ()
            forward_only = own and not any(phase in ("B", "W") for phase, _, _ in own)
            if self.trained[self.stages_of(rank)].any() and not forward_only:
                gathers = self.replicated and self.work.layout.zero > 0
                codes = (SYNC,) * self.replicated + (UPDATE,) + (GATHER,) * gathers
                found += [self.number(self.step_place, rank, code) for code in codes]
        return found

    def stages_of(self, pipeline_rank: int) -> slice:
        """Return the stages, one for each chunk, on a pipeline rank."""
        return slice(pipeline_rank, None, self.work.pipeline_ranks)

    def waits(self) -> Waits:
        """Return what waits for what, in the order of what each waits for."""
        numbers, count = self.numbers, len(self.cells)
        own, all_groups = numbers[:count], numbers[count:-1]
        near, far = own[:, :-1], own[:, 1:]
        pairs = [(far[..., RECV_F], near[..., SEND_F]), (near[..., RECV_B], far[..., SEND_B])]
        pairs += [(own[..., waiting], own[..., awaited]) for waiting, awaited in WITHIN_STAGE]
        if self.sharded:
            shared = all_groups[self.micro_batch_of]
            pairs += [(own[..., code], shared[..., GATHER]) for code in (FORWARD, BACKWARD, INPUTS)]
            for code, which in ((BACKWARD, slice(None)), (WEIGHTS, self.trained), (INPUTS, ~self.trained)):
                pairs.append((shared[:, which, SYNC], own[:, which, code]))
        for rank in range(self.work.pipeline_ranks):
            pairs += self.closing_waits(rank)
        flat = [tuple(part.ravel() for part in np.broadcast_arrays(*pair)) for pair in pairs]
        waiting, awaited = (np.concatenate(parts) for parts in zip(*flat, strict=True))
        return waiting, awaited

    def closing_waits(self, rank: int) -> list[Waits]:
        """Return what the tasks of a pipeline rank that run once a step wait for: its passes that complete gradients,
        and reductions of micro-batches.
        """
        trained, stages = self.trained[self.stages_of(rank)], self.stages_of(rank)
        sync, update, gather = (self.numbers[-1, rank, code] for code in (SYNC, UPDATE, GATHER))
        passes = self.numbers[: len(self.cells), stages][:, trained][..., [BACKWARD, WEIGHTS]]
        reductions = self.numbers[len(self.cells) : -1, stages][:, trained, SYNC]
        found = [(sync if self.replicated else update, passes), (gather, update)]
        return [*found, (update, sync if self.replicated else reductions)]

    def kinds_of(self, local: IntArray) -> IntArray:
        """Return the kind of each number, counted from the module's first: the same in all micro-batches."""
        place, within = np.divmod(local, self.shape[1] * self.shape[2])
        return self.group[place] * (self.shape[1] * self.shape[2]) + within

    def works_of(self, local: IntArray) -> IntArray:
        """Return the work of each number, counted from the module's first."""
        return local // (self.shape[1] * self.shape[2])

    def kind_task(self, kind: int) -> Task:
        """Return a task of a kind."""
        (group, stage), (phase, of) = divmod(kind // len(CODES), self.shape[1]), CODES[kind % len(CODES)]
        work = self.work
        if group >= len(self.members):
            once = group > len(self.members)
            layers = work.rank_layers(stage) if once else work.stages[stage]
            return Task(work.module, layers, phase, None, "all", work.stage_ranks(stage, work.layout.ranks))
        c, code = self.members[group], kind % len(CODES)
        neighbour = {RECV_F: stage - 1, SEND_B: stage - 1, RECV_B: stage + 1, SEND_F: stage + 1}.get(code)
        peers = NO_RANKS if neighbour is None else work.stage_ranks(neighbour, c.ranks)
        ranks = work.stage_ranks(stage, c.ranks)
        return Task(
            work.module, work.stages[stage], phase, None, c.group, ranks, degree=c.degree, share=c.share, ring=c.ring,
            of=of, peers=peers,
        )  # fmt: skip
