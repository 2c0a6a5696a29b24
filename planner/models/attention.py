"""Attention over packed documents of different lengths: no padding, no token sees another document.

Three back ends: one call of scaled dot product attention per document (any device and dtype), pieces of documents where
a window hides most of the keys or heads have sinks, and the variable-length flash kernel (CUDA, half precision).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.blockwise import Staying, blockwise
from planner.models.pieces import Masking
from planner.models.recompute import whole
from planner.models.relative import of_pairs
from planner.models.varlen import suits, varlen_kernel


class Scores(NamedTuple):
    """What becomes of the products of queries and keys."""

    causal: bool
    scale: float | None = None  # None: 1 / sqrt(D)
    distances: Tensor | None = None  # [H, 2 * longest - 1], added by the distance between them


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
) -> Tensor:
    """q [T, H, D] over k [T, Hkv, D] and v [T, Hkv, Dv], Hkv dividing H, to [T, H, Dv].

    `cu_seqlens` [documents + 1], best in host memory; `sinks` [H], a logit beside each of a head's scores.
    """
    if not len(q):
        return nothing(q, k, v, sinks)
    if masking.window is not None and not masking.causal:
        cu_seqlens, masking = in_blocks(cu_seqlens, masking.window), Masking(causal=False)
    if sinks is not None:
        return blockwise(q, k, v, Staying([*documents(cu_seqlens)]), masking, sinks)
    kernel = varlen_kernel(masking.window is not None) if suits(q, v.shape[2]) else None
    if kernel:
        return kernel(q, k, v, cu_seqlens, masking)
    if masking.window is not None:
        return blockwise(q, k, v, Staying([*documents(cu_seqlens)]), masking)
    return per_document(q, k, v, (cu_seqlens, cu_seqlens), Scores(masking.causal))


def per_document(q: Tensor, k: Tensor, v: Tensor, ends: tuple[Tensor, Tensor], scores: Scores) -> Tensor:
    """One dense attention per document: work grows with the sum of squares, not with the square of the sum.

    `ends`: where documents start among queries, and where among keys, as `cu_seqlens`.
    """
    if not len(q):
        return nothing(q, k, v, scores.distances)
    queries, keys = (each.diff().tolist() for each in ends)
    parts = zip(torch.split(q, queries), torch.split(k, keys), torch.split(v, keys), strict=True)
    if scores.distances is None:
        return torch.cat([attended(*part, scores) for part in parts])
    return torch.cat([whole(attended, *part, scores) for part in parts])  # no matrix of a document is kept


def attended(q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    """One document's."""
    query, key, value = (x.transpose(0, 1)[None] for x in (q, k, v))  # [1, H, n, D]
    added = None if scores.distances is None else masked(of_pairs(scores.distances, len(q)), scores.causal)
    causal, grouped = scores.causal and added is None, q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(
        query, key, value, added, is_causal=causal, scale=scores.scale, enable_gqa=grouped
    )
    return out[0].transpose(0, 1)


def masked(added: Tensor, causal: bool) -> Tensor:
    """Numbers [H, n, n] that are added to scores; of keys behind their query alone, where attention is causal."""
    if not causal:
        return added
    later = torch.ones(added.shape[1:], dtype=torch.bool, device=added.device).triu(1)
    return added.masked_fill(later, -torch.inf)


def nothing(q: Tensor, k: Tensor, v: Tensor, more: Tensor | None) -> Tensor:
    """Of an idle rank: nothing to do, but every gradient exists and is zero."""
    zero = q.sum() + 0 * k.sum() + 0 * v.sum() + (0 if more is None else 0 * more.sum())
    return zero.expand(0, q.shape[1], v.shape[2])


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
