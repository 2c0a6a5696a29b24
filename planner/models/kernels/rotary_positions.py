"""Rotary position embedding (arXiv 2104.09864): queries and keys are rotated by their position in the document, each
pair of dims at a rate of its own, scaled for longer documents by the rule of the spec.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim
from planner.specs.layers.rope_scaling import Llama3Scaling, RopeScaling, YarnScaling

RotaryTable = tuple[Tensor, Tensor]  # cosines and sines, each (tokens, 1, rotary_dim / 2)
DEFAULT_BASE = 10000.0  # of specs that give none


def rotary_frequencies(width: int, base: float, scaling: RopeScaling | None, device: torch.device) -> Tensor:
    """Radians per token `(width / 2)` of the pairs of a head's `width` rotated dims, in float64."""
    steps = torch.arange(0, width, 2, dtype=torch.float64, device=device)
    plain = base ** (-steps / width)
    if scaling is None:
        return plain
    if isinstance(scaling, Llama3Scaling):
        kept = kept_by_wavelength(plain, scaling)
    elif isinstance(scaling, YarnScaling):
        kept = kept_by_rotations(plain, base, scaling)
    else:
        kept = torch.zeros_like(plain)
    return kept * plain + (1 - kept) * plain / scaling.factor


def kept_by_wavelength(plain: Tensor, scaling: Llama3Scaling) -> Tensor:
    """For each frequency `(pairs)` the share, from 0 to 1, that is not divided."""
    wavelengths = 2 * math.pi / plain
    return ((scaling.original / wavelengths - scaling.low) / max(scaling.high - scaling.low, 1e-9)).clamp(0, 1)


def kept_by_rotations(plain: Tensor, base: float, scaling: YarnScaling) -> Tensor:
    """The share of each frequency `(pairs)` that is not divided, by YaRN's ramp from `fast` to `slow` rotations."""
    width = 2 * len(plain)

    def pair(rotations: float) -> float:
        return width * math.log(scaling.original / (2 * math.pi * rotations)) / (2 * math.log(base))

    first, last = pair(scaling.fast), pair(scaling.slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    if first == last:
        last += 0.001  # as its authors do: no division by zero
    pairs = torch.arange(len(plain), dtype=torch.float64, device=plain.device)
    return 1 - ((pairs - first) / (last - first)).clamp(0, 1)


def rotated_scale(scaling: RopeScaling | None) -> float:
    """The factor of rotated queries, and of rotated keys: YaRN's, by which attention sharpens in longer documents."""
    if not isinstance(scaling, YarnScaling):
        return 1.0
    return scaling.attention or 0.1 * math.log(max(1.0, scaling.factor)) + 1


def rotary_table(
    positions: Tensor, head_dim: int, dtype: torch.dtype, base: float = DEFAULT_BASE, scaling: RopeScaling | None = None
) -> RotaryTable:
    """Cosines and sines `(tokens, 1, head_dim / 2)` of positions `(tokens)`, computed in float64."""
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


def section_axes(sections: Sequence[int], interleaved: bool) -> Tensor:
    """The axis `(pairs)` int64 by which each pair rotates: section by section; or interleaved, time, row and column in
    turn while the section of each lasts, and time in the places of those that are over (Qwen3-VL, arXiv 2511.21631).
    """
    if not interleaved:
        return torch.repeat_interleave(torch.tensor(sections))
    axes = torch.zeros(sum(sections), dtype=torch.int64)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes


def sectioned_table(
    places: Tensor, axes: Tensor, dtype: torch.dtype, base: float, scaling: RopeScaling | None = None
) -> RotaryTable:
    """The table `(tokens, 1, pairs)` of tokens in several axes `(tokens, axes)`: pairs have the angles that they always
    have, by the place in the axis `(pairs)` of each.
    """
    angles = places[:, axes.to(places.device)].double() * rotary_frequencies(
        2 * len(axes), base, scaling, places.device
    )
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
