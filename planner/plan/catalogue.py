"""Which process groups a plan needs: those of its meshes, and those that share sequences."""

from collections.abc import Iterator

from planner.plan.expert_layers import expert_layouts
from planner.plan.mesh import (
    expert_groups_over,
    expert_state_groups,
    groups_over,
    spread_of_experts,
    stage_ranks,
    state_groups,
)
from planner.plan.model import Layout, Plan, assignments
from planner.plan.shares import partners
from planner.specs.base import Ranks
from planner.specs.layers import Module

EXPERT_GROUPS: tuple[tuple[str, ...], ...] = (("ep",), ("etp",), ("ep", "etp"))  # that exchange tokens


def catalogue(plan: Plan) -> set[Ranks]:
    """Of all ranks: every rank creates every group."""
    found: set[Ranks] = set()
    for name, layout in plan.layouts.items():
        found.update(ranks for states in state_groups(layout) for ranks in states.values())
        for at in expert_layouts(layout, plan.uses.models[name]):
            found.update(expert_groups(at))
        found.update(groups_over(layout, ("tp",)).values())
        found.update(stage_ranks(layout, stage) for stage in range(layout.pp))
        found.update(tied_ends(plan.uses.models[name], layout))
        found.update(sequence_groups(plan, name, layout))
    return found


def expert_groups(layout: Layout) -> Iterator[Ranks]:
    """Those that have states of the same experts, and those that exchange tokens."""
    for states in expert_state_groups(layout):
        yield from states.values()
    for dims in EXPERT_GROUPS if spread_of_experts(layout) > 1 else ():
        yield from expert_groups_over(layout, dims).values()


def sequence_groups(plan: Plan, module: str, layout: Layout) -> Iterator[Ranks]:
    """On each stage the ranks of a group that have the same part of the matrices."""
    rows = (row for step in plan.steps for row in step.micro_batches)
    named = {a.group for row in rows for a in assignments(plan, row) if a.module == module}
    for name in plan.groups if plan.then else named:  # steps that are planned while the run lasts may use any
        group = plan.groups[name]
        ranks, split = set(group.ranks) & set(layout.ranks), group.split_in(layout)
        for stage in range(layout.pp):
            held = Ranks(sorted(ranks & set(stage_ranks(layout, stage))))
            for together in {partners(layout, held, rank) for rank in held}:
                yield from map(
                    Ranks, (*split.blocks(together), *split.rings(together)) if split.ring > 1 else [together]
                )


def tied_ends(module: Module, layout: Layout) -> Iterator[Ranks]:
    """First and last of each pipeline, if the embedding of the first stage is the head of the last."""
    if module.ties:
        for line in groups_over(layout, ("pp",)).values():
            yield Ranks((line[0], line[-1])[: len(line)])
