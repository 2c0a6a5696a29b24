"""Attention over packed documents of different lengths: no padding, no token sees another document.

Three back ends: one call of scaled dot product attention per document (any device and dtype), pieces of documents where
a window hides most of the keys or heads have sinks, and the variable-length flash kernel (CUDA, half precision).
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.blockwise import Staying, blockwise
from planner.models.pieces import Masking
from planner.models.varlen import suits, varlen_kernel


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
) -> Tensor:
    """q [T, H, D] over k [T, Hkv, D] and v [T, Hkv, Dv], Hkv dividing H, to [T, H, Dv].

    `cu_seqlens` [documents + 1], best in host memory; `sinks` [H], a logit beside each of a head's scores.
    """
    if not len(q):  # an idle rank: nothing to do, but every gradient exists and is zero
        nothing = q.sum() + k.sum() + v.sum() + (0 if sinks is None else 0 * sinks.sum())
        return nothing.expand(0, q.shape[1], v.shape[2])
    if masking.window is not None and not masking.causal:
        cu_seqlens, masking = in_blocks(cu_seqlens, masking.window), Masking(causal=False)
    if sinks is not None:
        return blockwise(q, k, v, Staying([*documents(cu_seqlens)]), masking, sinks)
    kernel = varlen_kernel(masking.window is not None) if suits(q, v.shape[2]) else None
    if kernel:
        return kernel(q, k, v, cu_seqlens, masking)
    if masking.window is not None:
        return blockwise(q, k, v, Staying([*documents(cu_seqlens)]), masking)
    return per_document(q, k, v, cu_seqlens, masking.causal)


def per_document(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, causal: bool) -> Tensor:
    """One dense attention per document: work grows with the sum of squares, not with the square of the sum."""
    lengths = cu_seqlens.diff().tolist()
    grouped = q.shape[1] != k.shape[1]
    outputs = []
    for parts in zip(*(torch.split(x, lengths) for x in (q, k, v)), strict=True):
        query, key, value = (part.transpose(0, 1)[None] for part in parts)  # [1, H, n, D]
        out = F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)


def in_blocks(cu_seqlens: Tensor, window: int) -> Tensor:
    """Each document as blocks of so many tokens, its last block of what is left."""
    ends = [0]
    for _, _, length in documents(cu_seqlens):
        begin = ends[-1]
        ends += [begin + min(done + window, length) for done in range(0, length, window)]
    return torch.tensor(ends, dtype=cu_seqlens.dtype)


def documents(cu_seqlens: Tensor) -> Iterator[tuple[int, int, int]]:
    """The tokens of each: (document, 0, its length)."""
    for document, length in enumerate(cu_seqlens.diff().tolist()):
        yield document, 0, length
