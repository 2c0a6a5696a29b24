"""Rotary position embedding (arXiv:2104.09864): queries and keys turn by their place in the document."""

import torch
from torch import Tensor

from planner.specs.layers import Module
from planner.specs.layers.heads import head_dim

Rotary = tuple[Tensor, Tensor]  # cosines and sines, [t, 1, R / 2] each, of the R numbers of a head that turn

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
    return latent.rope_dim if latent else int(head_dim(spec) * spec.turning_share)


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Turn the first R of x [t, H, D], as R / 2 pairs (i, i + R / 2)."""
    cos, sin = rotary
    turning = 2 * cos.shape[-1]
    left, right = x[..., :turning].chunk(2, -1)
    still = [x[..., turning:]] if turning < x.shape[-1] else []
    return torch.cat([left * cos - right * sin, right * cos + left * sin, *still], -1).to(x.dtype)
