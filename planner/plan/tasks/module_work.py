"""The tasks of one module in one step, stage by stage, in the order of its schedule, with their dependencies.

A stage is a chunk of consecutive layers; chunk c is on pipeline rank c mod pp, which may have several chunks.

A slot of the schedule (`F3` on stage 1) becomes: receive the activations, gather the parameters (ZeRO-3), compute on
every group that has items in that micro-batch, send the result on; backward likewise with gradients, then their
reduction. Where backward is split, I receives and sends, as other stages need the gradients of inputs only, and uses
the gathered parameters; W needs neither, and the reduction follows it. Where all ranks of a stage synchronise in every
micro-batch (plan/mesh/synchronisation.py), idle ones get a task without tokens, so that collectives match on all ranks.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.plan.gradient_flow import TRAINED, GradientFlow, gradient_flows
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.mesh.synchronisation import (
    all_ranks_join_micro_batches,
    idle_group,
    reduces_each_micro_batch,
    reduces_gradients,
)
from planner.plan.plan_file import Assignment, Group, Layout, Plan, Step, assignments
from planner.plan.schedules import Slot, default_schedule
from planner.plan.schedules.explicit import resolve_slots
from planner.plan.task import Phase, Task, task_id
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.workload.items import Size, part_lengths


@dataclass(frozen=True, slots=True)
class GroupWork:
    """The work of one group on one module in one micro-batch. A group without items is an idle rank."""

    micro_batch: int
    group: str
    ranks: Ranks
    items: tuple[int, ...]
    sizes: tuple[int, ...]
    degree: int
    share: float
    ring: int = 1
    offload: tuple[float, ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleWork:
    """The work of one module in one step: its stages, each a chunk of layers, and each group's work by micro-batch."""

    module: str
    layout: Layout
    stages: tuple[Layers, ...]
    micro_batches: tuple[tuple[GroupWork, ...], ...]
    syncs_each_micro_batch: bool = False  # whether all ranks of a stage take part in every micro-batch
    reduces_gradients: bool = False  # whether gradients are reduced over ranks of a stage
    flow: GradientFlow = TRAINED
    # Results of `stage_ranks`, by stage and the id of `within`: hashing many ranks would take longer than all else.
    stage_ranks_cache: dict[tuple[int, int], tuple[Ranks, Ranks]] = field(default_factory=dict)
    stage_sets: dict[int, frozenset[int]] = field(default_factory=dict)  # ranks of a stage: not made for each group
    # Passes by stage, phase and the id of their work: each is asked for by what sends, receives and waits for it, too.
    passes: dict[tuple[int, Phase, int], tuple[GroupWork, Task]] = field(default_factory=dict)

    def stage_ranks(self, stage: int, within: Ranks) -> Ranks:
        """Return the ranks of `within` that hold a stage."""
        key = stage % self.pipeline_ranks, id(within)
        if key not in self.stage_ranks_cache:  # the entry keeps the object alive, and so its id valid
            holding = self.stage_set(key[0])
            self.stage_ranks_cache[key] = within, Ranks(rank for rank in within if rank in holding)
        return self.stage_ranks_cache[key][1]

    def stage_set(self, stage: int) -> frozenset[int]:
        """Return the ranks that hold a stage, as a set."""
        if stage not in self.stage_sets:
            self.stage_sets[stage] = frozenset(stage_ranks(self.layout, stage))
        return self.stage_sets[stage]

    def has_backward(self, stage: int) -> bool:
        """Whether a stage computes any gradients."""
        return self.flow.has_backward(stage == len(self.stages) - 1)

    def trains(self, stage: int) -> bool:
        """Whether a stage has weights that are trained."""
        return self.flow.trains(stage == len(self.stages) - 1)

    @property
    def order_source(self) -> tuple[Any, ...]:
        """All that its tasks and their order follow from but for the items of its groups."""
        layout = with_fields(self.layout, recompute="none", offload=0.0, optimizer_offload=0.0)
        flags = self.syncs_each_micro_batch, self.reduces_gradients
        groups = [[(c.group, c.ranks, bool(c.items)) for c in micro_batch] for micro_batch in self.micro_batches]
        return layout, self.stages, groups, flags, self.flow

    @property
    def pipeline_ranks(self) -> int:
        """The number of pipeline ranks; all have the same number of stages."""
        return self.layout.pp

    def slots(self, order: str | Sequence[str] | None) -> list[list[Slot]]:
        """Return the slots of each pipeline rank in this order, else in the layout's schedule, else in the default one.

        Raises InputError for an unknown schedule, and where an order does not fit the pipeline.
        """
        chunks = len(self.stages) // self.pipeline_ranks
        default = self.layout.schedule or default_schedule(chunks)
        return resolve_slots(default if order is None else order, self.pipeline_ranks, len(self.micro_batches), chunks)

    def chunks(self, rank: int) -> list[Layers]:
        """Return the chunks of layers on one rank, in order; none where it has no layer of the module."""
        return [layers for n, layers in enumerate(self.stages) if rank in self.stage_ranks(n, self.layout.ranks)]

    def rank_layers(self, pipeline_rank: int) -> Layers:
        """Return all layers on a pipeline rank."""
        return Layers(layer for stage in self.stages[pipeline_rank :: self.pipeline_ranks] for layer in stage)


def module_work(plan: Plan, step: Step, module: str, omitted_ranks: Container[int] = ()) -> ModuleWork:
    """Return the work that a step assigns of a module. `omitted_ranks`: ranks whose groups are left out, since they are
    identical to other groups (plan/mesh/identical_groups.py).
    """
    layout, spec = plan.layouts[module], plan.uses.models[module]
    stages = layout.stages or (Layers(range(spec.layers)),)
    micro_batches, all_ranks = [], all_ranks_join_micro_batches(layout, spec)
    for number, assigned in enumerate(step.micro_batches):
        groups = [(a, plan.groups[a.group]) for a in assignments(plan, assigned) if a.module == module]
        busy = [
            group_work(number, *each, layout, plan.uses.items[module])
            for each in groups
            if each[1].ranks[0] not in omitted_ranks
        ]
        idle = idle_work(number, layout, [group.ranks for _, group in groups], omitted_ranks) if all_ranks else []
        micro_batches.append((*busy, *idle))
    flow = gradient_flows(plan.uses.models, plan.edges)[module]
    return ModuleWork(module, layout, stages, tuple(micro_batches), all_ranks, reduces_gradients(layout, spec), flow)


def group_work(
    micro_batch: int, assignment: Assignment, group: Group, layout: Layout, sizes: dict[int, Size]
) -> GroupWork:
    """Return the work that one assignment gives a group. `sizes`: by item."""
    items, split, offload = assignment.items, group.resolved_split(layout), assignment.offload_shares(layout)
    parts = tuple(part_lengths(sizes[i]) for i in items)
    return GroupWork(
        micro_batch,
        assignment.group,
        group.ranks,
        items,
        tuple(map(sum, parts)),
        split.degree,
        assignment.share,
        split.ring,
        offload if any(offload) else (),
        parts if any(len(of_item) > 1 for of_item in parts) else (),
    )


def idle_work(
    micro_batch: int, layout: Layout, busy_groups: list[Ranks], omitted_ranks: Container[int]
) -> list[GroupWork]:
    """Return work without items for each rank that has none, where all ranks synchronise in every micro-batch."""
    if not busy_groups:
        return []
    busy = {rank for ranks in busy_groups for rank in ranks}
    idle = [rank for rank in layout.ranks if rank not in busy and rank not in omitted_ranks]
    return [GroupWork(micro_batch, idle_group(rank), Ranks((rank,)), (), (), 1, 1.0) for rank in idle]


def stage_tasks(work: ModuleWork, slots: Sequence[Sequence[Slot]]) -> list[list[Task]]:
    """Return, by pipeline rank, its tasks in the order of its slots."""
    return [
        [
            task
            for phase, micro_batch, chunk in of_rank
            for task in slot_tasks(work, chunk * work.pipeline_ranks + pipeline_rank, phase, micro_batch)
        ]
        for pipeline_rank, of_rank in enumerate(slots)
    ]


def slot_tasks(work: ModuleWork, stage: int, phase: Phase, micro_batch: int) -> list[Task]:
    """Return the tasks on a stage of one slot of the schedule."""
    tasks: list[Task] = []
    if not work.micro_batches[micro_batch]:  # no group works on the module in this micro-batch: nothing to gather for
        return tasks
    if phase != "F" and not work.has_backward(stage):
        return tasks
    sharded = reduces_each_micro_batch(work.layout)  # then parameters are sharded too, and gathered for each pass
    if sharded and phase == "F":
        tasks.append(collective_task(work, stage, "gather", micro_batch))
    passes = [task for c in work.micro_batches[micro_batch] for task in group_tasks(work, stage, phase, c)]
    if sharded and phase != "W":
        gather_id = tasks[0].id if tasks else collective_task(work, stage, "gather", micro_batch).id
        passes = [task.with_dependencies(gather_id) if task.phase == phase else task for task in passes]
    tasks += passes
    if sharded and passes and (phase in ("B", "W") or (phase == "I" and not work.trains(stage))):
        tasks.append(
            collective_task(work, stage, "sync", micro_batch).with_dependencies(
                *(t.id for t in passes if t.phase == phase)
            )
        )
    return tasks


def collective_task(work: ModuleWork, stage: int, phase: Phase, micro_batch: int | None) -> Task:
    """Return a gather, sync or update of all ranks of a stage; once a step (`micro_batch` None) of all chunks on these
    ranks.
    """
    layers = work.stages[stage] if micro_batch is not None else work.rank_layers(stage)
    return Task(work.module, layers, phase, micro_batch, "all", work.stage_ranks(stage, work.layout.ranks))


def group_tasks(work: ModuleWork, stage: int, phase: Phase, c: GroupWork) -> list[Task]:
    """Return the recv, the pass and the send of one group on one stage. Work without items has nothing to send."""
    task = pass_task(work, stage, phase, c)
    if not task.ranks:  # an idle rank is on one stage only
        return []
    if phase != "F" and not work.has_backward(stage):
        return []
    if phase == "W" and not work.trains(stage):
        return []
    if phase == "W":
        return [task.with_dependencies(pass_task(work, stage, "I", c).id)]
    previous, following = (stage - 1, stage + 1) if phase == "F" else (stage + 1, stage - 1)
    tasks = []
    if c.items and 0 <= previous < len(work.stages):
        tasks.append(recv_task(work, previous, stage, phase, c))
    waited = [each.id for each in tasks] + ([pass_task(work, stage, "F", c).id] if phase != "F" else [])
    tasks.append(task.with_dependencies(*waited) if waited else task)
    if c.items and 0 <= following < len(work.stages) and (phase == "F" or work.has_backward(following)):
        tasks.append(send_task(work, stage, following, phase, c))
    return tasks


def pass_task(work: ModuleWork, stage: int, phase: Phase, c: GroupWork) -> Task:
    """Return the pass of one group on one stage, without dependencies: one object for all who ask."""
    key = stage, phase, id(c)
    if key not in work.passes:  # the entry keeps the work alive, and so its id valid
        work.passes[key] = c, new_pass_task(work, stage, phase, c)
    return work.passes[key][1]


def new_pass_task(work: ModuleWork, stage: int, phase: Phase, c: GroupWork) -> Task:
    """Return a new task: the pass of one group on one stage, without dependencies."""
    return Task(
        work.module,
        work.stages[stage],
        phase,
        c.micro_batch,
        c.group,
        work.stage_ranks(stage, c.ranks),
        c.sizes,
        c.items,
        c.degree,
        c.share,
        c.ring,
        c.offload,
        parts=c.parts,
    )


def task_of(c: GroupWork, task: Task) -> Task:
    """Return a task of a group in a micro-batch with these items in place of others: what it waits for is the same."""
    return Task(
        task.module, task.layers, task.phase, task.micro_batch, task.group, task.ranks, c.sizes, c.items, c.degree,
        c.share, c.ring, c.offload, task.of, task.peers, task.after, c.parts, task.id,
    )  # fmt: skip


def send_task(work: ModuleWork, source: int, target: int, phase: Phase, c: GroupWork) -> Task:
    """Return the send from one stage to its neighbour."""
    near = pass_task(work, source, phase, c)
    return near.as_transfer("send", transfer_content(phase), work.stage_ranks(target, c.ranks), (near.id,))


def recv_task(work: ModuleWork, source: int, target: int, phase: Phase, c: GroupWork) -> Task:
    """Return the matching recv. It is the same whether the backward of the sending stage is split or not."""
    far, near, of = pass_task(work, target, phase, c), work.stage_ranks(source, c.ranks), transfer_content(phase)
    send = task_id(work.module, work.stages[source], "send", c.micro_batch, c.group, of)
    return far.as_transfer("recv", of, near, (send,))


def transfer_content(phase: Phase) -> Phase:
    """Return what a send of this pass carries: F, activations; B, their gradients."""
    return "F" if phase == "F" else "B"
