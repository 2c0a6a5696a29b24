"""How a module is laid out, as a person says it."""

from planner.plan.model import Layout


def layout_text(layout: Layout) -> str:
    """`tp 8 · pp 4 · dp 2 · zero 1 · recompute none · bf16`: fastest dim first."""
    sizes = [*reversed(layout.mesh.items()), *layout.experts.items(), ("zero", layout.zero)]
    chunks = len(layout.stages) // layout.mesh.get("pp", 1)
    said = [f"{name} {size}" for name, size in sizes] + ([f"vpp {chunks}"] if chunks > 1 else [])
    return " · ".join([*said, f"recompute {layout.recompute}", layout.dtype])
