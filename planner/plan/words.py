"""How a module is laid out, as a person says it."""

from planner.plan.model import Layout


def layout_text(layout: Layout) -> str:
    """`tp 8 · pp 4 · dp 2 · zero 1 · recompute none · bf16`: fastest dim first."""
    sizes = [*reversed(layout.mesh.items()), *layout.experts.items(), ("zero", layout.zero)]
    chunks = len(layout.stages) // layout.mesh.get("pp", 1)
    said = [f"{name} {size}" for name, size in sizes] + ([f"vpp {chunks}"] if chunks > 1 else [])
    sent = [f"gradients {layout.gradients}"] if layout.gradients != "float32" else []
    sent += [f"dispatch {layout.dispatch}"] if layout.dispatch != "all_to_all" else []
    return " · ".join([*said, f"recompute {recompute_text(layout)}", layout.dtype, *sent])


def recompute_text(layout: Layout) -> str:
    """`full`, or `full 0-11, selective 12-15` where layers differ: what is not named recomputes nothing."""
    if not isinstance(layout.recompute, dict):
        return layout.recompute
    return ", ".join(f"{how} {layers}" for layers, how in layout.recompute.items()) or "none"
