"""How fast each pair of a head's dims rotates, scaled for longer documents by the rule of its spec."""

import math

import torch
from torch import Tensor

from planner.specs.layers.rope_scaling import Llama3Scaling, RopeScaling, YarnScaling


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
    return ((scaling.original / wavelengths - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)


def kept_by_rotations(plain: Tensor, base: float, scaling: YarnScaling) -> Tensor:
    """The same by YaRN's ramp over pairs, which ends where a pair rotates `fast` or `slow` times in a document."""
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
