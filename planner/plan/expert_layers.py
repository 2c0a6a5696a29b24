"""The layouts of a module's layers of experts: one, or several where these lie otherwise in some layers."""

from planner.plan.model import Layout
from planner.specs.layers import Module
from planner.specs.layers.blocks import blocks


def expert_layouts(layout: Layout, module: Module) -> list[Layout]:
    """One for each way in which experts lie; none of a module without any."""
    if module.routed is None:
        return []
    if not layout.experts:
        return [layout]
    return [at for at, _ in layout.by_experts(layer for layer in range(module.layers) if is_moe(module, layer))]


def is_moe(module: Module, layer: int) -> bool:
    return "experts" in blocks(module.layer_kind(layer))
