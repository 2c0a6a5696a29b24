"""Which layers of a module are of which kind: a model's layers need not be alike."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from planner.specs.model import Decoder, Module, Vit
from planner.specs.parts import BLOCKS, Experts, StateSpace

LayerKind = str  # dense, moe or encoder; of a pattern's layers the blocks, as in state_space+mlp
USUAL = {"dense": ("attention", "mlp"), "moe": ("attention", "experts"), "encoder": ("attention", "mlp")}


def experts_of(module: Module) -> Experts | None:
    return module.moe if isinstance(module, Decoder) else None


def state_space_of(module: Module) -> StateSpace | None:
    return module.state_space if isinstance(module, Decoder) else None


def layer_kind(module: Module, layer: int) -> LayerKind:
    """The kind of one layer, counted from 0."""
    if not isinstance(module, Decoder):
        return "encoder"
    if module.pattern:
        return pattern_kinds(module.pattern)[layer]
    moe = module.moe
    behind = layer + 1 - moe.dense_layers if moe else 0  # its place, from 1, behind the first dense layers
    return "moe" if moe and behind > 0 and behind % moe.every == 0 else "dense"


@lru_cache(maxsize=1024)
def pattern_kinds(pattern: str) -> tuple[LayerKind, ...]:
    """The kind of each layer of a pattern."""
    return tuple("+".join(BLOCKS[letter] for letter in word) for word in pattern.split())


def blocks(kind: LayerKind) -> tuple[str, ...]:
    """What a layer of a kind is made of, in order: each block has a norm in front of it and a residual around it."""
    return USUAL.get(kind) or tuple(kind.split("+"))


def layer_kinds(module: Module) -> tuple[LayerKind, ...]:
    """The kind of each layer."""
    return tuple(layer_kind(module, layer) for layer in range(module.layers))


def kind_counts(module: Module, layers: Sequence[int] | None = None) -> dict[LayerKind, int]:
    """How many of these layers (None: of all) are of each kind that there is among them."""
    if layers is not None:
        return dict(Counter(layer_kind(module, layer) for layer in layers))
    if not isinstance(module, Decoder):
        return {"encoder": module.layers}
    if module.pattern:
        return dict(Counter(pattern_kinds(module.pattern)))
    moe = max(0, module.layers - module.moe.dense_layers) // module.moe.every if module.moe else 0
    counts: dict[LayerKind, int] = {"dense": module.layers - moe, "moe": moe}
    return {kind: count for kind, count in counts.items() if count}


def windowed(module: Module, layer: int) -> int | None:
    """Tokens in the attention window of a layer; None: full attention.

    A decoder's window slides, each token with those before it; a vision transformer's parts an image into blocks.
    """
    if isinstance(module, Decoder):
        full = module.full_every and (layer + 1) % module.full_every == 0
        return None if full else module.window
    if isinstance(module, Vit) and layer not in module.full_layers:
        return module.window
    return None
