"""When ranks of a pipeline stage need each other: for parameters, gradients, experts."""

from planner.plan.expert_layers import expert_layouts
from planner.plan.mesh import expert_mesh, spread_of_experts
from planner.plan.model import Layout
from planner.specs.layers import experts_of
from planner.specs.model import Module


def meets(layout: Layout, module: Module) -> bool:
    """Whether all ranks of a stage take part in every micro-batch, also those that have no items in it.

    Under ZeRO-3 parameters are gathered from all of them; tokens come from any of them to experts that are spread over
    them; and a load-balance loss counts the tokens of all.
    """
    moe = experts_of(module)
    spread = any(spread_of_experts(at) > 1 for at in expert_layouts(layout, module))
    return layout.zero == 3 or spread or (moe is not None and moe.balance > 0)


def reduces(layout: Layout, module: Module) -> bool:
    """Whether a parameter of a stage lies on several ranks with data of their own, whose gradients are summed."""
    return layout.data_ranks > 1 or any(expert_mesh(at)["edp"] > 1 for at in expert_layouts(layout, module))
