"""The layouts of a module's MoE layers: one, or several where the placement of experts differs between layers."""

from planner.plan.plan_file import Layout
from planner.specs.layers import Module
from planner.specs.layers.blocks import kind_blocks


def expert_layouts(layout: Layout, module: Module) -> list[Layout]:
    """Return one layout for each placement of experts; none for a module without experts."""
    if module.routed_experts is None:
        return []
    if not layout.experts:
        return [layout]
    return [
        at
        for at, _ in layout.by_expert_placement(layer for layer in range(module.layers) if has_experts(module, layer))
    ]


def has_experts(module: Module, layer: int) -> bool:
    """Whether a layer has a mixture of experts."""
    return "experts" in kind_blocks(module.layer_kind(layer))
