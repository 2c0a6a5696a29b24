"""The work of one module in one step: its stages, and the items of each group by micro-batch.

A stage is a chunk of consecutive layers; chunk c is on pipeline rank c mod pp, which may have several chunks. Where all
ranks of a stage synchronise in every micro-batch (plan/mesh/synchronisation.py), idle ones get work without items, so
that collectives match on all ranks.
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
from planner.plan.tasks.task_table import GroupWork
from planner.specs.base import Layers, Ranks
from planner.specs.workload.items import Size, part_lengths


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
        layout = self.layout
        ranks = [stage_ranks(layout, stage) for stage in range(layout.pp)]
        flags = self.syncs_each_micro_batch, reduces_each_micro_batch(layout), self.flow, layout.schedule
        groups = [[(c.group, c.ranks, bool(c.items)) for c in micro_batch] for micro_batch in self.micro_batches]
        return ranks, self.stages, groups, flags

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
