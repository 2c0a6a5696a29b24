"""The process groups that a plan needs: those of its meshes, those that shard sequences, and those of tasks' losses."""

from collections.abc import Iterator

from planner.plan.legal.group_laws import GroupPlacement
from planner.plan.mesh.rank_mesh import (
    all_blocks,
    expert_groups_over,
    expert_layouts,
    expert_shards,
    expert_state_groups,
    groups_over,
    stage_ranks,
    state_groups,
)
from planner.plan.plan_file import Group, Layout, Plan, assignments
from planner.plan.tokens.token_shards import sharing_ranks
from planner.specs.base import Ranks
from planner.specs.layers import Module

# Dims whose ranks exchange tokens
EXPERT_EXCHANGE_DIMS: tuple[tuple[str, ...], ...] = (("ep",), ("etp",), ("ep", "etp"))


def process_groups(plan: Plan) -> set[Ranks]:
    """Return the process groups of all ranks: every rank creates every group."""
    groups: set[Ranks] = set()
    for name, layout in plan.layouts.items():
        groups.update(ranks for states in state_groups(layout) for ranks in all_blocks(states))
        for at in expert_layouts(layout, plan.uses.models[name]):
            groups.update(expert_groups(at))
        groups.update(all_blocks(groups_over(layout, ("tp",))))
        groups.update(stage_ranks(layout, stage) for stage in range(layout.pp))
        groups.update(tied_embedding_groups(plan.uses.models[name], layout))
        groups.update(sequence_groups(plan, name, layout))
    groups.update(loss_groups(plan))
    if plan.embeddings:
        members = plan.embeddings.group_ranks(plan.size)
        groups.update(members)
        groups.update(map(Ranks, zip(*members, strict=True)))  # copies of a shard
    return groups


def expert_groups(layout: Layout) -> Iterator[Ranks]:
    """Yield the groups that hold states of the same experts, and those that exchange tokens."""
    for states in expert_state_groups(layout):
        yield from all_blocks(states)
    for dims in EXPERT_EXCHANGE_DIMS if expert_shards(layout) > 1 else ():
        yield from all_blocks(expert_groups_over(layout, dims))


def sequence_groups(plan: Plan, module: str, layout: Layout) -> Iterator[Ranks]:
    """Yield, for each stage, the ranks of a group with the same shard of tp, and its blocks and rings."""
    stages = [frozenset(stage_ranks(layout, stage)) for stage in range(layout.pp)]
    for group in groups_of_module(plan, module):
        split = group.resolved_split(layout)
        for holding in stages:
            on_stage = Ranks(rank for rank in group.ranks if rank in holding)
            for sharing in {sharing_ranks(layout, on_stage, rank) for rank in on_stage}:
                yield from map(
                    Ranks, (*split.ulysses_blocks(sharing), *split.rings(sharing)) if split.ring > 1 else [sharing]
                )


def groups_of_module(plan: Plan, module: str) -> list[Group]:
    """Return the groups that work on a module in any step: where steps are planned during the run, all that can."""
    if plan.then:
        placement = GroupPlacement(plan)
        return [group for name, group in plan.groups.items() if not placement.faults(module, name)]
    micro_batches = (micro_batch for step in plan.steps for micro_batch in step.micro_batches)
    used = (a.group for micro_batch in micro_batches for a in assignments(plan, micro_batch) if a.module == module)
    return [plan.groups[name] for name in dict.fromkeys(used)]


def loss_groups(plan: Plan) -> Iterator[Ranks]:
    """Yield the ranks that have features of each loss that compares some, in each step."""
    last = {name: frozenset(stage_ranks(layout, layout.pp - 1)) for name, layout in plan.layouts.items()}
    contrastive = [task for task in plan.uses.tasks.values() if task.loss == "contrastive"]
    for step in plan.steps if contrastive else ():
        assigned = [a for micro_batch in step.micro_batches for a in assignments(plan, micro_batch)]
        for task in contrastive:
            samples = {*task.samples}
            own = [a for a in assigned if a.module in task.modules and not samples.isdisjoint(a.items)]
            ranks = {rank for a in own for rank in plan.groups[a.group].ranks if rank in last[a.module]}
            yield Ranks(sorted(ranks))


def tied_embedding_groups(module: Module, layout: Layout) -> Iterator[Ranks]:
    """Yield the first and last rank of each pipeline where embedding and head share their weights."""
    if module.ties_head:
        for pipeline in all_blocks(groups_over(layout, ("pp",))):
            yield Ranks((pipeline[0], pipeline[-1])[: len(pipeline)])
