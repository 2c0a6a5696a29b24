"""The normalisation layers of a module: RMSNorm (arXiv 1910.07467) or LayerNorm (arXiv 1607.06450)."""

import torch
from torch import nn

from planner.specs.layers import Module


def build_norm(spec: Module, dtype: torch.dtype, width: int | None = None) -> nn.Module:
    """A norm of vectors `(..., width)`; None: the module's hidden width."""
    kind = nn.RMSNorm if spec.norm == "rms" else nn.LayerNorm
    return kind(width or spec.hidden, eps=spec.norm_eps, dtype=dtype)
