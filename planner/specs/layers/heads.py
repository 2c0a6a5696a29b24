"""Widths of attention's heads."""

from planner.specs.layers.stack import Stack


def kv_heads(module: Stack) -> int:
    """Heads of keys and values; latent attention makes as many as there are heads."""
    return module.heads if module.compressed else module.kv_heads or module.heads


def head_dim(module: Stack) -> int:
    """Width of a head's query and key."""
    latent = module.compressed
    return latent.nope_dim + latent.rope_dim if latent else module.head_dim or module.hidden // module.heads


def value_dim(module: Stack) -> int:
    """Width of a head's value and output."""
    return module.compressed.value_dim if module.compressed else head_dim(module)


def check_heads(module: Stack) -> None:
    """Heads share out the hidden size, and query heads share out the key/value heads."""
    if module.head_dim is None and module.hidden % module.heads:
        raise ValueError(
            f"hidden {module.hidden} is not divisible by heads {module.heads} | change one, or say head_dim"
        )
    if module.heads % kv_heads(module):
        raise ValueError(f"heads {module.heads} is not divisible by kv_heads {kv_heads(module)} | change one")


def norm_width(module: Stack, width: int) -> int:
    """Parameters of a norm over so many numbers: weights, and where it has a mean a bias."""
    return width if module.norm == "rms" else 2 * width
