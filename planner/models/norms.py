"""The norms of a module: of root mean squares (arXiv 1910.07467), or of layers (arXiv 1607.06450)."""

import torch
from torch import nn

from planner.specs.layers import Module


def norm(spec: Module, dtype: torch.dtype, width: int | None = None) -> nn.Module:
    """Of vectors [..., width]; None: as wide as the module."""
    kind = nn.RMSNorm if spec.norm == "rms" else nn.LayerNorm
    return kind(width or spec.hidden, eps=spec.norm_eps, dtype=dtype)
