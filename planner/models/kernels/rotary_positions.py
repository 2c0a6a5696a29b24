"""Rotary position embedding (arXiv 2104.09864): queries and keys are rotated by their position in the document."""

from collections.abc import Sequence

import torch
from torch import Tensor

from planner.models.kernels.rotary_frequencies import rotary_frequencies, rotated_scale
from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim
from planner.specs.layers.rope_scaling import RopeScaling

RotaryTable = tuple[Tensor, Tensor]  # cosines and sines, each (tokens, 1, rotary_dim / 2)

DEFAULT_BASE = 10000.0  # of specs that give none


def rotary_table(
    positions: Tensor,
    head_dim: int,
    dtype: torch.dtype,
    base: float = DEFAULT_BASE,
    scaling: RopeScaling | None = None,
) -> RotaryTable:
    """Cosines and sines `(tokens, 1, head_dim / 2)` of every position `(tokens)`, computed in float64 and stored in
    float32 or better.
    """
    frequencies = rotary_frequencies(head_dim, base, scaling, positions.device)
    return table_of_angles(positions[:, None, None].double() * frequencies, dtype, rotated_scale(scaling))


def table_of_angles(angles: Tensor, dtype: torch.dtype, scale: float = 1.0) -> RotaryTable:
    """Cosines and sines of angles `(tokens, 1, pairs)`, times `scale`, stored in float32 or better."""
    table_dtype = torch.promote_types(dtype, torch.float32)
    return (angles.cos() * scale).to(table_dtype), (angles.sin() * scale).to(table_dtype)


def patch_table(places: Tensor, head_dim: int, dtype: torch.dtype, base: float = DEFAULT_BASE) -> RotaryTable:
    """The table `(tokens, 1, head_dim / 2)` of patches in rows and columns `(tokens, 2)`: the first half of the pairs
    rotates by the row as a head of half the width would, the second by the column.
    """
    steps = torch.arange(0, head_dim // 2, 2, dtype=torch.float64, device=places.device)
    angles = places[:, :, None].double() * base ** (-2 * steps / head_dim)
    return table_of_angles(angles.flatten(1)[:, None], dtype)


def sectioned_table(
    places: Tensor, sections: Sequence[int], dtype: torch.dtype, base: float, scaling: RopeScaling | None = None
) -> RotaryTable:
    """The table `(tokens, 1, pairs)` of tokens in several axes `(tokens, axes)`: pairs have the angles that they always
    have, each section by the place in an axis of its own.
    """
    axes = torch.repeat_interleave(torch.tensor(sections, device=places.device))
    angles = places[:, axes].double() * rotary_frequencies(2 * len(axes), base, scaling, places.device)
    return table_of_angles(angles[:, None], dtype, rotated_scale(scaling))


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
