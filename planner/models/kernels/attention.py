"""Attention over packed documents of different lengths, without padding; no token attends to another document.

There are three back ends: one call of scaled dot product attention per document (any device and dtype), blockwise
attention over tiles of documents (where a sliding window hides most keys, or heads have sinks), and the variable-length
flash kernel (CUDA, half precision).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.autograd.recompute import run_recomputed
from planner.models.kernels.attention_tiles import Masking
from planner.models.kernels.blockwise import LocalBlocks, blockwise_attention
from planner.models.kernels.relative_positions import bias_by_pair
from planner.models.kernels.varlen_attention import flash_supports, varlen_kernel


class ScoreOptions(NamedTuple):
    """How products of queries and keys become attention scores."""

    causal: bool
    scale: float | None = None  # None: 1 / sqrt(D)
    distance_bias: Tensor | None = None  # (heads, 2 * longest - 1): added to scores, by distance of key and query


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
) -> Tensor:
    """Attention of q `(tokens, heads, head_dim)` to k `(tokens, kv_heads, head_dim)` and v `(tokens, kv_heads,
    value_dim)`, giving `(tokens, heads, value_dim)`. `kv_heads` divides `heads`.

    `cu_seqlens` `(documents + 1)` should be in host memory; `sinks` `(heads)` is one more logit beside each head's
    scores (arXiv 2508.10925).
    """
    if not len(q):
        return empty_attention(q, k, v, sinks)
    if masking.grid is not None:
        windows, order = masking.grid, masking.grid.order
        within = packed_attention(q[order], k[order], v[order], windows.cu_seqlens, Masking(causal=False), sinks)
        return within[windows.places]
    if masking.window is not None and not masking.causal:
        cu_seqlens, masking = block_boundaries(cu_seqlens, masking.window), Masking(causal=False)
    if sinks is not None:
        return blockwise_attention(q, k, v, LocalBlocks([*document_spans(cu_seqlens)]), masking, sinks)
    kernel = varlen_kernel(masking.window is not None) if flash_supports(q, v.shape[2]) else None
    if kernel:
        return kernel(q, k, v, cu_seqlens, masking)
    if masking.window is not None:
        return blockwise_attention(q, k, v, LocalBlocks([*document_spans(cu_seqlens)]), masking)
    return attention_per_document(q, k, v, (cu_seqlens, cu_seqlens), ScoreOptions(masking.causal))


def attention_per_document(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: tuple[Tensor, Tensor], scores: ScoreOptions
) -> Tensor:
    """Dense attention of each document by itself, so that work grows with the sum of squared lengths.

    q is `(queries, heads, head_dim)`, k `(keys, kv_heads, head_dim)`, v `(keys, kv_heads, value_dim)`, the result
    `(queries, heads, value_dim)`. `cu_seqlens` holds the document boundaries among queries, and those among keys, each
    `(documents + 1)`.
    """
    if not len(q):
        return empty_attention(q, k, v, scores.distance_bias)
    queries, keys = (each.diff().tolist() for each in cu_seqlens)
    parts = zip(torch.split(q, queries), torch.split(k, keys), torch.split(v, keys), strict=True)
    if scores.distance_bias is None:
        return torch.cat([document_attention(*part, scores) for part in parts])
    # Recomputed in backward: the bias of a document is quadratic.
    return torch.cat([run_recomputed(document_attention, *part, scores) for part in parts])


def document_attention(q: Tensor, k: Tensor, v: Tensor, scores: ScoreOptions) -> Tensor:
    """Attention within one document, `(n, heads, value_dim)`, with the arguments of `attention_per_document`."""
    query, key, value = (x.transpose(0, 1)[None] for x in (q, k, v))  # (1, heads, n, head_dim)
    bias = (
        None if scores.distance_bias is None else causal_bias(bias_by_pair(scores.distance_bias, len(q)), scores.causal)
    )
    causal, grouped = scores.causal and bias is None, q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(
        query, key, value, bias, is_causal=causal, scale=scores.scale, enable_gqa=grouped
    )
    return out[0].transpose(0, 1)


def causal_bias(bias: Tensor, causal: bool) -> Tensor:
    """The bias `(heads, queries, keys)` that is added to scores; where attention is causal, -inf for later keys."""
    if not causal:
        return bias
    later = torch.ones(bias.shape[1:], dtype=torch.bool, device=bias.device).triu(1)
    return bias.masked_fill(later, -torch.inf)


def empty_attention(q: Tensor, k: Tensor, v: Tensor, optional: Tensor | None) -> Tensor:
    """The empty output `(0, heads, value_dim)` of a rank without tokens, through which gradients are zero."""
    zero = q.sum() + 0 * k.sum() + 0 * v.sum() + (0 if optional is None else 0 * optional.sum())
    return zero.expand(0, q.shape[1], v.shape[2])


def block_boundaries(cu_seqlens: Tensor, window: int) -> Tensor:
    """The boundaries `(blocks + 1)` of documents cut into blocks of `window` tokens; a last block may be shorter."""
    boundaries = [0]
    for _, _, length in document_spans(cu_seqlens):
        begin = boundaries[-1]
        boundaries += [begin + min(done + window, length) for done in range(0, length, window)]
    return torch.tensor(boundaries, dtype=cu_seqlens.dtype)


def document_spans(cu_seqlens: Tensor) -> Iterator[tuple[int, int, int]]:
    """The tokens of each document as (document, 0, its length)."""
    for document, length in enumerate(cu_seqlens.diff().tolist()):
        yield document, 0, length
