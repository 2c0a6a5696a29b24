"""Cross-attention: queries of this module's tokens, keys and values of another module's outputs for the same documents.
A token attends to all that its own document reads, and to nothing of other documents.

The ranks of a tensor-parallel block share the heads, and each has all outputs: their gradient is summed over ranks.
"""

import torch
from torch import Tensor, nn

from planner.models.attention import Scores, per_document
from planner.models.batch import Batch
from planner.models.heads import output_bias
from planner.models.held import Held
from planner.models.key_heads import key_heads, key_projection
from planner.models.linear import column, row
from planner.models.recompute import follow
from planner.models.relative import UNSCALED
from planner.specs.layers import Module
from planner.specs.layers.heads import head_dim, kv_heads


class CrossAttention(nn.Module):
    """Cross-attention with its projections."""

    def __init__(self, spec: Module, dtype: torch.dtype, shard: Held) -> None:
        super().__init__()
        part, self.head_dim = shard.tp, head_dim(spec)
        self.part, self.heads = part, part.size(spec.heads)
        self.kv_heads = len(key_heads(spec.heads, kv_heads(spec), part))
        self.scores = Scores(causal=False, scale=UNSCALED if spec.relative_buckets else None)
        queries, bias, width = spec.heads * self.head_dim, spec.bias != "none", spec.crossing
        self.query = column(spec.hidden, queries, bias, dtype, part)
        self.key = key_projection(spec, bias and spec.bias != "all_but_key", dtype, part, width)
        self.value = key_projection(spec, bias, dtype, part, width)
        self.output = row(queries, spec.hidden, output_bias(spec), dtype, part)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """x `(local_tokens, hidden)` to the same shape; the batch's memory is `(read_tokens, width)`."""
        tensor, memory = batch.among(self.part), batch.memory
        assert memory is not None, "a module with cross-attention has an edge into it in every plan"
        x = follow(tensor.gather, x)
        q = self.query(x).view(len(x), self.heads, self.head_dim)
        read = memory.values.to(x.dtype)
        k = self.key(read).view(len(read), self.kv_heads, self.head_dim)
        v = self.value(read).view(len(read), self.kv_heads, self.head_dim)
        out = per_document(q, k, v, (batch.cu_seqlens, memory.cu_seqlens), self.scores)
        return self.output(out.reshape(len(x), self.heads * self.head_dim), tensor)  # type: ignore[no-any-return]
