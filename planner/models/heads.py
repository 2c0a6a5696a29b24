"""Grouped-query attention over packed documents: projections per token, attention through the sequence-parallel group.

The ranks of a tensor-parallel block share the query heads; where they cannot share key and value heads, each has all of
those matrices, and computes what its query heads read.
"""

import torch
from torch import Tensor, nn

from planner.models.attention import Scores, per_document
from planner.models.batch import Batch
from planner.models.held import Held, Split
from planner.models.key_heads import key_heads, key_projection
from planner.models.linear import column, row
from planner.models.norms import norm
from planner.models.pieces import Masking
from planner.models.places import Places
from planner.models.recompute import follow
from planner.models.relative import UNSCALED
from planner.models.rotary import rotate
from planner.specs.layers import Module
from planner.specs.layers.heads import head_dim, kv_heads


class Attention(nn.Module):
    """Grouped-query self-attention with its projections."""

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, shard: Held) -> None:
        super().__init__()
        part, self.head_dim = shard.tp, head_dim(spec)
        self.part, self.heads = part, part.size(spec.heads)
        self.kv_heads = len(key_heads(spec.heads, kv_heads(spec), part))
        self.masking = Masking(spec.causal, spec.window_of(layer))
        queries, bias = spec.heads * self.head_dim, spec.bias != "none"
        self.query = column(spec.hidden, queries, bias, dtype, part)
        self.key = key_projection(spec, bias and spec.bias != "all_but_key", dtype, part)
        self.value = key_projection(spec, bias, dtype, part)
        self.output = row(queries, spec.hidden, output_bias(spec), dtype, part)
        normalise_heads = spec.normed_heads
        self.query_norm = norm(spec, dtype, self.head_dim) if normalise_heads else None
        self.key_norm = norm(spec, dtype, self.head_dim) if normalise_heads else None
        self.sinks = sinks(spec, dtype, self.heads)
        self.splits = {} if self.sinks is None else {"sinks": (Split(0, part, "tp"),)}

    def forward(self, x: Tensor, encoding: Places | None, batch: Batch) -> Tensor:
        """x `(local_tokens, hidden)` to the same shape. `encoding` is that of `position_encoding`."""
        tensor = batch.among(self.part)
        x = follow(tensor.gather, x)
        tokens = len(x)
        q = self.query(x).view(tokens, self.heads, self.head_dim)
        k = self.key(x).view(tokens, self.kv_heads, self.head_dim)
        v = self.value(x).view(tokens, self.kv_heads, self.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if isinstance(encoding, Tensor):
            boundaries, local_bias = (
                (batch.cu_seqlens, batch.cu_seqlens),
                encoding[slice(*self.part.span(len(encoding)))],
            )
            out = per_document(q, k, v, boundaries, Scores(self.masking.causal, UNSCALED, local_bias.to(q.dtype)))
        else:
            if encoding is not None:
                q, k = rotate(q, encoding), rotate(k, encoding)
            out = batch.exchange.attend(q, k, v, batch.cu_seqlens, self.masking, self.sinks)
        return self.output(out.reshape(tokens, self.heads * self.head_dim), tensor)  # type: ignore[no-any-return]


def output_bias(spec: Module) -> bool:
    """Whether the output projection of attention has a bias."""
    return spec.bias not in ("none", "qkv")


def sinks(spec: Module, dtype: torch.dtype, heads: int) -> nn.Parameter | None:
    """One learned logit for each of these heads, `(heads)`, beside the scores of all keys (arXiv 2508.10925)."""
    return nn.Parameter(torch.empty(heads, dtype=dtype)) if spec.sink_heads else None
