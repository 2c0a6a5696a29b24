"""The parts of a module's layers that a layout can recompute by name (specs/parallelism.py, RecomputedPart)."""

from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import Block, kind_blocks
from planner.specs.parallelism import RECOMPUTED_PARTS, RecomputedPart

PART_OF_BLOCK: dict[Block, RecomputedPart] = {
    "attention": "attention",
    "cross_attention": "attention",
    "mlp": "mlp",
    "experts": "moe",
}


def module_parts(module: Module) -> tuple[RecomputedPart, ...]:
    """Return the parts that some layer has: every layer has norms, and shared experts are recomputed as an MLP is."""
    blocks = {block for kind in kind_counts(module) for block in kind_blocks(kind)}
    own: set[RecomputedPart] = {"norm", *(part for block, part in PART_OF_BLOCK.items() if block in blocks)}
    if module.routed_experts and module.routed_experts.shared_ffn:
        own.add("mlp")
    return tuple(part for part in RECOMPUTED_PARTS if part in own)
