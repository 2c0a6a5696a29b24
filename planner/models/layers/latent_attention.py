"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, §2.1): heads are expanded from compressed vectors.

Keys and values come from one compressed vector of a token, queries from another or from its hidden vector. Part of each
query and key is rotated by position, and that of the key is shared by all heads. The ranks of a tensor-parallel block
compress their own tokens, gather the compressed vectors, and share the heads.
"""

import torch
from torch import Tensor, nn

from planner.models.autograd.recompute import recompute_along, run_part
from planner.models.batch import Batch
from planner.models.kernels.attention_tiles import Masking
from planner.models.kernels.rotary_positions import RotaryTable, apply_rotary
from planner.models.layers.grouped_query_attention import has_output_bias, sink_logits
from planner.models.layers.linear import build_norm, column_parallel, replicated_linear, row_parallel
from planner.models.sharding import ModuleShard, ParameterSplit
from planner.specs.layers import Module
from planner.specs.layers.components import LatentAttentionShape


class LatentAttention(nn.Module):
    """Multi-head latent attention with its projections."""

    def __init__(
        self, spec: Module, latent: LatentAttentionShape, layer: int, dtype: torch.dtype, shard: ModuleShard
    ) -> None:
        super().__init__()
        self.latent, self.part, self.heads = latent, shard.tp, shard.tp.size(spec.heads)
        self.masking = Masking(causal=True, window=spec.window_of(layer))
        bias, part, width = spec.bias != "none", shard.tp, latent.nope_dim + latent.rope_dim
        query_width = latent.q_rank or spec.hidden
        self.query_down = replicated_linear(spec.hidden, query_width, bias, dtype) if latent.q_rank else None
        self.query_norm = build_norm(spec, dtype, query_width) if latent.q_rank else None
        self.query_up = column_parallel(query_width, spec.heads * width, False, dtype, part)
        self.key_down = replicated_linear(spec.hidden, latent.kv_rank + latent.rope_dim, bias, dtype)
        self.key_norm = build_norm(spec, dtype, latent.kv_rank)
        self.key_up = column_parallel(
            latent.kv_rank, spec.heads * (latent.nope_dim + latent.value_dim), False, dtype, part
        )
        self.output = row_parallel(spec.heads * latent.value_dim, spec.hidden, has_output_bias(spec), dtype, part)
        self.sinks = sink_logits(spec, dtype, self.heads)
        self.splits = {} if self.sinks is None else {"sinks": (ParameterSplit(0, part, "tp"),)}

    def forward(self, x: Tensor, rotary: RotaryTable | None, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape."""
        tensor = batch.tensor_parallel_for(self.part)
        latent, rotary_key, queries = self.compress(x, batch)
        k, v = self.expand_keys_values(latent, rotary_key, rotary)
        q, attend = self.expand_queries(queries, rotary), batch.sequence_parallel.attend
        out = run_part("attention", attend, q, k, v, batch.cu_seqlens, self.masking, self.sinks)
        return self.output(out.flatten(1), tensor)  # type: ignore[no-any-return]

    def compress(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """For all tokens of the block: the compressed keys and values `(tokens, kv_rank)`, the rotary part of the keys
        `(tokens, rope_dim)`, and what queries are projected from, `(tokens, q_rank)` or `(tokens, hidden)`. x is
        `(local_tokens, hidden)`.
        """
        latent, gather = self.latent, batch.tensor_parallel_for(self.part).all_gather
        widths = [latent.kv_rank, latent.rope_dim]
        compressed, rotary_key = torch.split(self.key_down(x), widths, 1)
        own = [self.key_norm(compressed), rotary_key]
        if self.query_down is None or self.query_norm is None:
            compressed, rotary_key = torch.split(gather(torch.cat(own, 1)), widths, 1)
            return compressed, rotary_key, recompute_along(gather, x)
        own.append(self.query_norm(self.query_down(x)))
        compressed, rotary_key, queries = torch.split(gather(torch.cat(own, 1)), [*widths, latent.q_rank], 1)
        return compressed, rotary_key, queries

    def expand_queries(self, x: Tensor, rotary: RotaryTable | None) -> Tensor:
        """Queries `(tokens, heads, nope_dim + rope_dim)` of x `(tokens, q_rank or hidden)`."""
        q = torch.unflatten(self.query_up(x), 1, (self.heads, -1))
        if rotary is None:
            return q
        unrotated, rotary_part = torch.split(q, [self.latent.nope_dim, self.latent.rope_dim], 2)
        return torch.cat([unrotated, apply_rotary(rotary_part, rotary)], 2)

    def expand_keys_values(
        self, compressed: Tensor, rotary_key: Tensor, rotary: RotaryTable | None
    ) -> tuple[Tensor, Tensor]:
        """Keys `(tokens, heads, nope_dim + rope_dim)` and values `(tokens, heads, value_dim)`, from compressed vectors
        `(tokens, kv_rank)` and the rotary part `(tokens, rope_dim)`.
        """
        expanded = torch.unflatten(self.key_up(compressed), 1, (self.heads, -1))
        unrotated, values = torch.split(expanded, [self.latent.nope_dim, self.latent.value_dim], 2)
        rotary_key = rotary_key[:, None]
        rotated = rotary_key if rotary is None else apply_rotary(rotary_key, rotary)
        return torch.cat([unrotated, rotated.expand(-1, self.heads, -1)], 2), values
