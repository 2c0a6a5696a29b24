"""When ranks of a pipeline stage synchronise: whether gradients are reduced, in every micro-batch or once a step."""

from collections.abc import Collection

from planner.plan.mesh.rank_mesh import expert_layouts, expert_mesh, expert_shards
from planner.plan.plan_file import Layout, Plan
from planner.plan.task import Phase
from planner.specs.layers import Module
from planner.specs.parallelism import Sync

PASS_PHASES: tuple[Phase, ...] = ("F", "B", "I", "W")
BACKWARD_PHASES: tuple[Phase, ...] = ("B", "I", "W")


def all_ranks_join_micro_batches(layout: Layout, module: Module) -> bool:
    """Whether all ranks of a stage take part in every micro-batch, also those without items in it.

    Under ZeRO-3 parameters are gathered from all of them; sharded experts receive tokens from any of them; and a
    load-balance loss counts the tokens of all.
    """
    moe = module.routed_experts
    sharded = any(expert_shards(at) > 1 for at in expert_layouts(layout, module))
    return layout.zero == 3 or sharded or (moe is not None and moe.balance > 0)


def idle_group(rank: int) -> str:
    """Return what a rank that joins micro-batches without items in them is called as a group of its own."""
    return f"idle{rank}"


def reduces_each_micro_batch(layout: Layout) -> bool:
    """Whether gradients are reduced after every micro-batch: under ZeRO-3, whose ranks hold no full gradients. Below
    it they are reduced once a step.
    """
    return layout.zero == 3


def sync_of(layout: Layout) -> Sync:
    """When the replicas of one module with this layout synchronise, as `steps[].sync` says it."""
    return "micro_batch" if reduces_each_micro_batch(layout) else "step"


def reduces_gradients(layout: Layout, module: Module) -> bool:
    """Whether gradients are reduced: some parameter is replicated on ranks with different data."""
    return layout.data_ranks > 1 or any(expert_mesh(at)["edp"] > 1 for at in expert_layouts(layout, module))


def synchronised_phases(plan: Plan) -> dict[str, Collection[Phase]]:
    """Return, by module, the passes of a micro-batch in which ranks of different groups synchronise.

    Forwards of an encoder under ZeRO-3 do not: its ranks synchronise in the gather before them.
    """
    feeding = {edge.source for edge in plan.edges}
    layouts = {
        name: layout
        for name, layout in plan.layouts.items()
        if all_ranks_join_micro_batches(layout, plan.uses.models[name])
    }
    return {
        name: BACKWARD_PHASES if name in feeding and layout.zero == 3 else PASS_PHASES
        for name, layout in layouts.items()
    }
