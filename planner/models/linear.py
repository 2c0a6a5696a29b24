"""The matrices of the zoo."""

import torch
from torch import nn


def linear(width: int, out: int, bias: bool, dtype: torch.dtype) -> nn.Linear:
    """y = x W^T (+ b), x [t, width], y [t, out]."""
    return nn.Linear(width, out, bias=bias, dtype=dtype)
