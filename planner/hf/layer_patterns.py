"""Rules for which layers have experts or full attention: every k-th of them, behind some first ones."""

from collections.abc import Sequence


def moe_layer_rule(sparse: Sequence[bool]) -> tuple[int, int] | None:
    """(dense_layers, every) such that exactly these layers (at least one) have experts; None where no such rule exists.

    Layer i, from 0, has experts where i + 1 - dense_layers is a positive multiple of `every`.
    """
    first = sparse.index(True)
    rest = [layer for layer, has in enumerate(sparse) if has and layer > first]
    every = rest[0] - first if rest else max(1, len(sparse) - first)
    dense = first + 1 - every
    fits = dense >= 0 and all(
        has == (layer >= dense and (layer + 1 - dense) % every == 0) for layer, has in enumerate(sparse)
    )
    return (dense, every) if fits else None


def full_attention_rule(full: Sequence[bool]) -> int | None:
    """`full_every` such that exactly these layers have full attention, 0 for none; None where no such rule exists."""
    if not any(full):
        return 0
    every = full.index(True) + 1
    fits = all(has == ((layer + 1) % every == 0) for layer, has in enumerate(full))
    return every if fits else None
