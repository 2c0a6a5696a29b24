"""Widths of attention heads and of norms."""

from planner.specs.layers.stack import ModuleStack


def kv_heads(module: ModuleStack) -> int:
    """Return the number of key/value heads; latent attention has one for each head."""
    return module.heads if module.latent_attention else module.kv_heads or module.heads


def head_dim(module: ModuleStack) -> int:
    """Return the width of a head's query and key."""
    latent = module.latent_attention
    return latent.nope_dim + latent.rope_dim if latent else module.head_dim or module.hidden // module.heads


def value_dim(module: ModuleStack) -> int:
    """Return the width of a head's value and output."""
    return module.latent_attention.value_dim if module.latent_attention else head_dim(module)


def check_heads(module: ModuleStack) -> None:
    """Raises ValueError unless heads divide the hidden size, and key/value heads the heads."""
    if module.head_dim is None and module.hidden % module.heads:
        raise ValueError(
            f"hidden {module.hidden} is not divisible by heads {module.heads} | change one, or set head_dim"
        )
    if module.heads % kv_heads(module):
        raise ValueError(f"heads {module.heads} is not divisible by kv_heads {kv_heads(module)} | change one")


def norm_parameters(module: ModuleStack, width: int) -> int:
    """Return the number of parameters of a norm over this width: weights, and of a layer norm biases."""
    return width if module.norm == "rms" else 2 * width
