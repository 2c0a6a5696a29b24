"""The variable-length flash kernel (CUDA, half precision), whose signature differs between releases of torch."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.kernels.attention_tiles import Masking

VarlenKernel = Callable[[Tensor, Tensor, Tensor, Tensor, Masking], Tensor]

HALF_DTYPES = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256  # limit of the flash kernels, which also require multiples of 8


def flash_supports(q: Tensor, width: int) -> bool:
    """Whether flash kernels support queries like q `(tokens, heads, head_dim)` with values of `width` columns."""
    head_dim = q.shape[2]
    return q.is_cuda and q.dtype in HALF_DTYPES and head_dim % 8 == 0 and width <= head_dim <= MAX_HEAD_DIM


@cache
def varlen_kernel(windowed: bool = False) -> VarlenKernel | None:
    """The installed torch's variable-length kernel, with a window if `windowed`; None where it has no such one."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return adapt_varlen_kernel(varlen_attn, windowed)


def adapt_varlen_kernel(varlen_attn: Callable[..., Any], windowed: bool = False) -> VarlenKernel | None:
    """Wrap torch's kernel to take `Masking` and shared key heads; None if it supports neither causality nor the window.

    The wrapped kernel takes q `(tokens, heads, head_dim)`, k `(tokens, kv_heads, head_dim)`, v `(tokens, kv_heads,
    value_dim)`, `cu_seqlens` `(documents + 1)` and a masking, and returns `(tokens, heads, value_dim)`.
    """
    names = inspect.signature(varlen_attn).parameters
    windows = "window_size" in names
    if not windows and (windowed or "is_causal" not in names):
        return None

    def kernel(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking) -> Tensor:
        longest = int(cu_seqlens.diff().max())
        cu_seqlens = cu_seqlens.to(q.device, torch.int32, non_blocking=True)
        options: dict[str, object] = {}
        if masking.causal:
            before = -1 if masking.window is None else masking.window - 1
            options = {"window_size": (before, 0)} if windows else {"is_causal": True}
        groups, width = q.shape[1] // k.shape[1], v.shape[2]
        if groups > 1 and "enable_gqa" in names:
            options["enable_gqa"] = True
        elif groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        if width < q.shape[2]:  # the kernel supports one width: zero columns of v give zero columns of the output
            v = F.pad(v, (0, q.shape[2] - width))
        out: Tensor = varlen_attn(q, k, v, cu_seqlens, cu_seqlens, longest, longest, **options)
        return out[..., :width]

    return kernel
