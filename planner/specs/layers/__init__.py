"""The kinds of modules, one in each file, and the kind of each of a module's layers, which may differ."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from planner.specs.layers.audio import Audio
from planner.specs.layers.blocks import LayerKind
from planner.specs.layers.decoder import Decoder
from planner.specs.layers.text_encoder import TextEncoder
from planner.specs.layers.vit import Vit

__all__ = ["Audio", "Decoder", "Module", "TextEncoder", "Vit", "kind_counts", "layer_kinds", "module_kind_counts"]

Module = Decoder | Vit | Audio | TextEncoder  # what a file may say, by its `kind`


@lru_cache(maxsize=1024)  # every price of a module asks
def layer_kinds(module: Module) -> tuple[LayerKind, ...]:
    """The kind of each layer."""
    return tuple(module.layer_kind(layer) for layer in range(module.layers))


def kind_counts(module: Module, layers: Sequence[int] | None = None) -> Mapping[LayerKind, int]:
    """How many of these layers (None: of all) are of each kind that there is among them, by the first of each."""
    return module_kind_counts(module) if layers is None else Counter(module.layer_kind(layer) for layer in layers)


@lru_cache(maxsize=1024)
def module_kind_counts(module: Module) -> Mapping[LayerKind, int]:
    return Counter(layer_kinds(module))
