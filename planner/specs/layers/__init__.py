"""The kinds of modules, one in each file; the kind of each of a module's layers, which may differ, and their parts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from planner.specs.layers.audio import Audio
from planner.specs.layers.blocks import Block, LayerKind, kind_blocks
from planner.specs.layers.decoder import Decoder
from planner.specs.layers.described import Described
from planner.specs.layers.text_encoder import TextEncoder
from planner.specs.layers.vit import Vit
from planner.specs.parallelism import RECOMPUTED_PARTS, RecomputedPart

__all__ = [
    "Audio", "Decoder", "Described", "Module", "TextEncoder", "Vit", "kind_counts", "layer_kinds", "module_parts",
]  # fmt: skip

Module = Decoder | Vit | Audio | TextEncoder | Described  # what a file may say, by its `kind`

# The parts of layers that a layout can recompute by name (specs/parallelism.py).
PART_OF_BLOCK: dict[Block, RecomputedPart] = {
    "attention": "attention",
    "cross_attention": "attention",
    "mlp": "mlp",
    "experts": "moe",
    "attending_matrices": "attention",
}


@lru_cache(maxsize=1024)  # every price of a module asks
def layer_kinds(module: Module) -> tuple[LayerKind, ...]:
    """The kind of each layer."""
    return tuple(module.layer_kind(layer) for layer in range(module.layers))


def kind_counts(module: Module, layers: Sequence[int] | None = None) -> Mapping[LayerKind, int]:
    """How many of these layers (None: of all) are of each kind that there is among them, by the first of each."""
    return module_kind_counts(module) if layers is None else Counter(module.layer_kind(layer) for layer in layers)


@lru_cache(maxsize=1024)
def module_kind_counts(module: Module) -> Mapping[LayerKind, int]:
    """How many layers of a module are of each kind, by the first of each."""
    return Counter(layer_kinds(module))


def module_parts(module: Module) -> tuple[RecomputedPart, ...]:
    """Return the parts that some layer of a module has, in the order of a layer. Every layer has norms, and shared
    experts are recomputed as an MLP is.
    """
    blocks = {block for kind in kind_counts(module) for block in kind_blocks(kind)}
    parts: set[RecomputedPart] = {"norm", *(part for block, part in PART_OF_BLOCK.items() if block in blocks)}
    if module.routed_experts and module.routed_experts.shared_ffn:
        parts.add("mlp")
    return tuple(part for part in RECOMPUTED_PARTS if part in parts)
