"""Cross-attention: queries of this module's tokens, keys and values of another module's outputs for the same documents.
A token attends to all that its own document reads, and to nothing of other documents.

The ranks of a tensor-parallel block share the heads, and each has all outputs: their gradient is summed over ranks.
"""

import torch
from torch import Tensor, nn

from planner.models.autograd.recompute import recompute_along, run_part
from planner.models.batch import Batch
from planner.models.kernels.attention import ScoreOptions, attention_per_document
from planner.models.kernels.relative_positions import UNIT_SCALE
from planner.models.layers.grouped_query_attention import has_output_bias, key_value_projection, local_key_heads
from planner.models.layers.linear import build_norm, column_parallel, row_parallel
from planner.models.sharding import ModuleShard
from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim, kv_heads


class CrossAttention(nn.Module):
    """Cross-attention with its projections."""

    def __init__(self, spec: Module, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        part, self.head_dim = shard.tp, head_dim(spec)
        self.part, self.heads = part, part.size(spec.heads)
        self.kv_heads = len(local_key_heads(spec.heads, kv_heads(spec), part))
        self.scores = ScoreOptions(causal=False, scale=UNIT_SCALE if spec.relative_buckets else None)
        queries, bias, width = spec.heads * self.head_dim, spec.bias != "none", spec.cross_attention_width
        self.query = column_parallel(spec.hidden, queries, bias, dtype, part)
        self.key = key_value_projection(spec, bias and spec.bias != "all_but_key", dtype, part, width)
        self.value = key_value_projection(spec, bias, dtype, part, width)
        self.query_norm = build_norm(spec, dtype, self.head_dim) if spec.has_cross_norms else None
        self.key_norm = build_norm(spec, dtype, self.head_dim) if spec.has_cross_norms else None
        self.output = row_parallel(queries, spec.hidden, has_output_bias(spec), dtype, part)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape; the batch's memory is `(read_tokens, width)`."""
        tensor, memory = batch.tensor_parallel_for(self.part), batch.memory
        assert memory is not None or not len(x), "documents that read nothing come to no cross-attention"
        x = recompute_along(tensor.all_gather, x)
        q = self.query(x).view(len(x), self.heads, self.head_dim)
        read = x.new_zeros(0, self.key.in_features) if memory is None else memory.values.to(x.dtype)
        k = self.key(read).view(len(read), self.kv_heads, self.head_dim)
        v = self.value(read).view(len(read), self.kv_heads, self.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        boundaries = (batch.cu_seqlens, batch.cu_seqlens if memory is None else memory.cu_seqlens)
        out = run_part("attention", attention_per_document, q, k, v, boundaries, self.scores)
        return self.output(out.reshape(len(x), self.heads * self.head_dim), tensor)  # type: ignore[no-any-return]
