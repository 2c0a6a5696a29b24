"""What layers are made of: blocks, each with a norm in front of it and the residual around it."""

from typing import Literal

Block = Literal["attention", "mlp", "experts"]
LayerKind = str  # a usual one by its name, any other by its blocks: `attention+mlp`
USUAL: dict[LayerKind, tuple[Block, ...]] = {
    "dense": ("attention", "mlp"),
    "moe": ("attention", "experts"),
    "encoder": ("attention", "mlp"),
}


def blocks(kind: LayerKind) -> tuple[Block, ...]:
    """Of a layer of this kind, in the order in which a token goes through them."""
    return USUAL[kind] if kind in USUAL else tuple(kind.split("+"))  # type: ignore[arg-type]
