"""When ranks of a pipeline stage need each other: for parameters, gradients, experts."""

from collections.abc import Collection

from planner.plan.expert_layers import expert_layouts
from planner.plan.mesh import expert_mesh, spread_of_experts
from planner.plan.model import Layout, Plan
from planner.plan.task import Phase
from planner.specs.layers import Module

PASSES: tuple[Phase, ...] = ("F", "B", "I", "W")
BACKWARD: tuple[Phase, ...] = ("B", "I", "W")


def meets(layout: Layout, module: Module) -> bool:
    """Whether all ranks of a stage take part in every micro-batch, also those that have no items in it.

    Under ZeRO-3 parameters are gathered from all of them; tokens come from any of them to experts that are spread over
    them; and a load-balance loss counts the tokens of all.
    """
    moe = module.routed
    spread = any(spread_of_experts(at) > 1 for at in expert_layouts(layout, module))
    return layout.zero == 3 or spread or (moe is not None and moe.balance > 0)


def reduces(layout: Layout, module: Module) -> bool:
    """Whether a parameter of a stage lies on several ranks with data of their own, whose gradients are summed."""
    return layout.data_ranks > 1 or any(expert_mesh(at)["edp"] > 1 for at in expert_layouts(layout, module))


def meeting(plan: Plan) -> dict[str, Collection[Phase]]:
    """By module, the passes of a micro-batch within which its ranks exchange something, whichever group they work in:
    under ZeRO-3 those of a module that feeds others meet in gathers instead, but for its backwards.
    """
    feeding = {edge.source for edge in plan.edges}
    met = {name: layout for name, layout in plan.layouts.items() if meets(layout, plan.uses.models[name])}
    return {name: BACKWARD if name in feeding and layout.zero == 3 else PASSES for name, layout in met.items()}
