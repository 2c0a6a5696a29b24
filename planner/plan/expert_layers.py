"""The layouts of a module's layers of experts: one, or several where these lie otherwise in some layers."""

from planner.plan.model import Layout
from planner.specs.layers import experts_of, layer_kind
from planner.specs.model import Module


def expert_layouts(layout: Layout, module: Module) -> list[Layout]:
    """One for each way in which experts lie; none of a module without any."""
    if experts_of(module) is None:
        return []
    if not layout.experts:
        return [layout]
    return [at for at, _ in layout.by_experts(layer for layer in range(module.layers) if is_moe(module, layer))]


def is_moe(module: Module, layer: int) -> bool:
    return layer_kind(module, layer) == "moe"
