"""The layouts of a module's MoE layers: one, or several where the placement of experts differs between layers."""

from planner.plan.model import Layout
from planner.specs.layers import Module
from planner.specs.layers.blocks import blocks


def expert_layouts(layout: Layout, module: Module) -> list[Layout]:
    """Return one layout for each placement of experts; none for a module without experts."""
    if module.routed is None:
        return []
    if not layout.experts:
        return [layout]
    return [at for at, _ in layout.by_experts(layer for layer in range(module.layers) if is_moe(module, layer))]


def is_moe(module: Module, layer: int) -> bool:
    """Whether a layer has a mixture of experts."""
    return "experts" in blocks(module.layer_kind(layer))
