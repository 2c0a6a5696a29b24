"""Grouped-query attention over packed documents: projections per token, attention through the sequence-parallel group.

The ranks of a tensor-parallel block share the query heads; where they cannot share key and value heads, each has all of
those matrices, and computes what its query heads read.
"""

from math import gcd

import torch
from torch import Tensor, nn

from planner.models.autograd.deferred_weights import deferrable_linear
from planner.models.autograd.recompute import recompute_along, run_part
from planner.models.batch import Batch
from planner.models.kernels.attention import ScoreOptions, attention_per_document
from planner.models.kernels.attention_tiles import Masking
from planner.models.kernels.relative_positions import UNIT_SCALE
from planner.models.kernels.rotary_positions import apply_rotary
from planner.models.layers.linear import build_norm, column_parallel, row_parallel
from planner.models.layers.position_encoding import PositionEncoding
from planner.models.sharding import EqualShard, ModuleShard, ParameterSplit
from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim, kv_heads


class GroupedQueryAttention(nn.Module):
    """Grouped-query self-attention with its projections."""

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        part, self.head_dim = shard.tp, head_dim(spec)
        self.part, self.heads = part, part.size(spec.heads)
        self.kv_heads = len(local_key_heads(spec.heads, kv_heads(spec), part))
        self.masking = Masking(spec.causal, spec.window_of(layer))
        queries, bias = spec.heads * self.head_dim, spec.bias != "none"
        self.gates = spec.has_attention_gate  # whose rows stand behind those of each head's query
        self.query = column_parallel(spec.hidden, queries * (1 + self.gates), bias, dtype, part)
        self.key = key_value_projection(spec, bias and spec.bias != "all_but_key", dtype, part)
        self.value = key_value_projection(spec, bias, dtype, part)
        self.output = row_parallel(queries, spec.hidden, has_output_bias(spec), dtype, part)
        normalise_heads = spec.has_qk_norm
        self.normalises_all = spec.has_whole_qk_norm
        widths = (queries, kv_heads(spec) * self.head_dim) if self.normalises_all else (self.head_dim, self.head_dim)
        self.query_norm, self.key_norm = (
            build_norm(spec, dtype, width) if normalise_heads else None for width in widths
        )
        self.sinks = sink_logits(spec, dtype, self.heads)
        self.splits = {} if self.sinks is None else {"sinks": (ParameterSplit(0, part, "tp"),)}

    def forward(self, x: Tensor, encoding: PositionEncoding | None, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape. `encoding` is that of `position_encoding`."""
        tensor = batch.tensor_parallel_for(self.part)
        x = recompute_along(tensor.all_gather, x)
        tokens = len(x)
        q, k, gate = self.query(x), self.key(x), None
        if self.gates:
            q, gate = (part.flatten(1) for part in torch.unflatten(q, 1, (self.heads, 2, self.head_dim)).unbind(2))
        if self.query_norm is not None and self.key_norm is not None and self.normalises_all:
            q, k = self.query_norm(q), self.key_norm(k)
        q, k = q.view(tokens, self.heads, self.head_dim), k.view(tokens, self.kv_heads, self.head_dim)
        v = self.value(x).view(tokens, self.kv_heads, self.head_dim)
        if self.query_norm is not None and self.key_norm is not None and not self.normalises_all:
            q, k = self.query_norm(q), self.key_norm(k)
        if isinstance(encoding, Tensor):
            boundaries = (batch.cu_seqlens, batch.cu_seqlens)
            local_bias = encoding[slice(*self.part.span(len(encoding)))]
            scores = ScoreOptions(self.masking.causal, UNIT_SCALE, local_bias.to(q.dtype))
            out = run_part("attention", attention_per_document, q, k, v, boundaries, scores)
        else:
            if encoding is not None:
                q, k = apply_rotary(q, encoding), apply_rotary(k, encoding)
            attend = batch.sequence_parallel.attend
            out = run_part("attention", attend, q, k, v, batch.cu_seqlens, self.masking_of(batch), self.sinks)
        out = out.reshape(tokens, self.heads * self.head_dim)
        return self.output(out if gate is None else out * gate.sigmoid(), tensor)  # type: ignore[no-any-return]

    def masking_of(self, batch: Batch) -> Masking:
        """Which tokens attend to which: of images in two dimensions within their windows, where a layer has them."""
        if self.masking.window is None or batch.windows is None:
            return self.masking
        return Masking(causal=False, grid=batch.windows)


def has_output_bias(spec: Module) -> bool:
    """Whether the output projection of attention has a bias."""
    return spec.bias not in ("none", "qkv")


def sink_logits(spec: Module, dtype: torch.dtype, heads: int) -> nn.Parameter | None:
    """One learned logit for each of these heads, `(heads)`, beside the scores of all keys (arXiv 2508.10925)."""
    return nn.Parameter(torch.empty(heads, dtype=dtype)) if spec.sink_heads else None


def local_key_heads(heads: int, shared: int, part: EqualShard) -> tuple[int, ...]:
    """Which key heads this rank's query heads read, each for the same number of consecutive query heads.

    A group of query heads that is on several ranks has its key head listed by each of them; where groups end within a
    rank, a key head may be listed several times.
    """
    per_key = gcd(heads // shared, part.size(heads))
    return tuple(head * shared // heads for head in range(*part.span(heads), per_key))


def key_value_projection(
    spec: Module, bias: bool, dtype: torch.dtype, part: EqualShard, width: int | None = None
) -> nn.Linear:
    """The projection of x `(tokens, width)` to this rank's keys or values `(tokens, local kv heads * head_dim)`."""
    shared, width = kv_heads(spec), width or spec.hidden
    if shared % part.count == 0:
        return column_parallel(width, shared * head_dim(spec), bias, dtype, part)
    return ReplicatedKeyHeads(spec, bias, dtype, local_key_heads(spec.heads, shared, part), width)


class ReplicatedKeyHeads(nn.Linear):
    """A replicated projection, of which a rank computes only the heads that it needs."""

    def __init__(self, spec: Module, bias: bool, dtype: torch.dtype, head_indices: tuple[int, ...], read: int) -> None:
        """`read` is the width of x."""
        self.width, self.head_indices = head_dim(spec), head_indices
        super().__init__(read, kv_heads(spec) * self.width, bias=bias, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Map x `(tokens, width)` to `(tokens, local kv heads * head_dim)`."""
        first, last = self.head_indices[0], self.head_indices[-1] + 1
        rows = slice(first * self.width, last * self.width)
        y = deferrable_linear(input, self.weight[rows], None if self.bias is None else self.bias[rows])
        if len(self.head_indices) == last - first:
            return y
        heads = torch.split(y, self.width, dim=1)
        return torch.cat([heads[head - first] for head in self.head_indices], 1)
