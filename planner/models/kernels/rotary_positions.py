"""Rotary position embedding (arXiv 2104.09864): queries and keys are rotated by their position in the document."""

import torch
from torch import Tensor

from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim

RotaryTable = tuple[Tensor, Tensor]  # cosines and sines, each (tokens, 1, rotary_dim / 2)

DEFAULT_BASE = 10000.0  # of specs that give none


def rotary_table(positions: Tensor, head_dim: int, dtype: torch.dtype, base: float = DEFAULT_BASE) -> RotaryTable:
    """Cosines and sines `(tokens, 1, head_dim / 2)` of every position `(tokens)`, computed in float64 and stored in
    float32 or better.
    """
    steps = torch.arange(0, head_dim, 2, dtype=torch.float64, device=positions.device)
    angles = positions[:, None, None].double() * base ** (-steps / head_dim)
    table_dtype = torch.promote_types(dtype, torch.float32)
    return angles.cos().to(table_dtype), angles.sin().to(table_dtype)


def rotary_dim(spec: Module) -> int:
    """How many of a head's dimensions are rotated."""
    latent = spec.latent_attention
    return latent.rope_dim if latent else int(head_dim(spec) * spec.rotary_fraction)


def apply_rotary(x: Tensor, rotary: RotaryTable) -> Tensor:
    """Rotate the first `rotary_dim` columns of x `(tokens, heads, head_dim)`, as pairs (i, i + rotary_dim / 2)."""
    cos, sin = rotary
    rotary_width = 2 * cos.shape[-1]
    left, right = x[..., :rotary_width].chunk(2, -1)
    unrotated = [x[..., rotary_width:]] if rotary_width < x.shape[-1] else []
    return torch.cat([left * cos - right * sin, right * cos + left * sin, *unrotated], -1).to(x.dtype)
