"""Rotary position embedding (arXiv:2104.09864): queries and keys turn by their place in the document."""

import torch
from torch import Tensor

from planner.specs.layers import Module
from planner.specs.layers.heads import head_dim

Rotary = tuple[Tensor, Tensor]  # cosines and sines, [t, 1, D / 2] each

BASE = 10000.0  # where a spec says none


def rotary_table(positions: Tensor, head_dim: int, dtype: torch.dtype, base: float = BASE) -> Rotary:
    """The angles of every token and frequency, computed in float64, kept in float32 or better."""
    steps = torch.arange(0, head_dim, 2, dtype=torch.float64, device=positions.device)
    angles = positions[:, None, None].double() * base ** (-steps / head_dim)
    kept = torch.promote_types(dtype, torch.float32)
    return angles.cos().to(kept), angles.sin().to(kept)


def rotary_dim(spec: Module) -> int:
    """Numbers of a head's query and key that turn."""
    latent = spec.compressed
    return latent.rope_dim if latent else head_dim(spec)


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Turn x [t, H, D], as D / 2 pairs (i, i + D / 2)."""
    cos, sin = rotary
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).to(x.dtype)
