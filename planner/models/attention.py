"""Attention over packed documents of different lengths: no padding, no token sees another document.

Two back ends: one call of scaled dot product attention per document (any device and dtype), and the variable-length
flash kernel (CUDA, half precision), whose signature differs between releases of torch.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Masking:
    """Who attends to whom within a document."""

    causal: bool
    window: int | None = None  # tokens that a token attends to, itself among them; None: all of them


Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, Masking], Tensor]

HALF = (torch.float16, torch.bfloat16)
MAX_FLASH_HEAD_DIM = 256  # of the flash kernels; they also want multiples of 8


def packed_attention(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking) -> Tensor:
    """q [T, H, D] over k and v [T, Hkv, D], Hkv dividing H; `cu_seqlens` [documents + 1], best in host memory."""
    if not len(q):
        return q + 0 * (k.sum() + v.sum())  # an idle rank: nothing to do, but every gradient exists and is zero
    kernel = varlen_kernel() if _suits_flash(q) else None
    return (kernel or per_document)(q, k, v, cu_seqlens, masking)


def per_document(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking) -> Tensor:
    """One dense attention per document: work grows with the sum of squares, not with the square of the sum."""
    lengths = cu_seqlens.diff().tolist()
    grouped = q.shape[1] != k.shape[1]
    outputs = []
    for parts in zip(*(torch.split(x, lengths) for x in (q, k, v)), strict=True):
        query, key, value = (part.transpose(0, 1)[None] for part in parts)  # [1, H, n, D]
        out = F.scaled_dot_product_attention(query, key, value, is_causal=masking.causal, enable_gqa=grouped)
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)


def _suits_flash(q: Tensor) -> bool:
    return q.is_cuda and q.dtype in HALF and q.shape[2] % 8 == 0 and q.shape[2] <= MAX_FLASH_HEAD_DIM


@cache
def varlen_kernel() -> Kernel | None:
    """The variable-length kernel of the installed torch, if it has one."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return adapt_varlen(varlen_attn)


def adapt_varlen(varlen_attn: Callable[..., Any]) -> Kernel | None:
    """Say causal and grouped heads in the words this kernel knows; None if it cannot be told to be causal."""
    names = inspect.signature(varlen_attn).parameters
    causal_word = {"window_size": (-1, 0)} if "window_size" in names else {"is_causal": True}
    if not causal_word.keys() <= names.keys():
        return None

    def kernel(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking) -> Tensor:
        longest = int(cu_seqlens.diff().max())
        cu_seqlens = cu_seqlens.to(q.device, torch.int32, non_blocking=True)
        words: dict[str, object] = dict(causal_word) if masking.causal else {}
        groups = q.shape[1] // k.shape[1]
        if groups > 1 and "enable_gqa" in names:
            words["enable_gqa"] = True
        elif groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out: Tensor = varlen_attn(q, k, v, cu_seqlens, cu_seqlens, longest, longest, **words)
        return out

    return kernel
