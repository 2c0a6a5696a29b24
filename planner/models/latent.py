"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, §2.1): heads are made of narrow vectors.

Keys and values come from one narrow vector of a token, queries from another or straight from its hidden vector; a part
of each query and key turns with its place, and that of the key is the same for all heads. Ranks of a tensor-parallel
block make the narrow vectors of their own tokens, exchange them, and share out the heads that are made of them.
"""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.heads import output_bias, sinks
from planner.models.held import Held, Split
from planner.models.linear import column, linear, row
from planner.models.norms import norm
from planner.models.pieces import Masking
from planner.models.recompute import follow
from planner.models.rotary import Rotary, rotate
from planner.specs.layers import Module
from planner.specs.parts import Latent


class LatentAttention(nn.Module):
    """x [s, hidden] to the same."""

    def __init__(self, spec: Module, latent: Latent, layer: int, dtype: torch.dtype, held: Held) -> None:
        super().__init__()
        self.latent, self.part, self.heads = latent, held.tp, held.tp.size(spec.heads)
        self.masking = Masking(causal=True, window=spec.window_of(layer))
        bias, part, width = spec.bias != "none", held.tp, latent.nope_dim + latent.rope_dim
        narrow = latent.q_rank or spec.hidden
        self.query_down = linear(spec.hidden, narrow, bias, dtype) if latent.q_rank else None
        self.query_norm = norm(spec, dtype, narrow) if latent.q_rank else None
        self.query_up = column(narrow, spec.heads * width, False, dtype, part)
        self.key_down = linear(spec.hidden, latent.kv_rank + latent.rope_dim, bias, dtype)
        self.key_norm = norm(spec, dtype, latent.kv_rank)
        self.key_up = column(latent.kv_rank, spec.heads * (latent.nope_dim + latent.value_dim), False, dtype, part)
        self.output = row(spec.heads * latent.value_dim, spec.hidden, output_bias(spec), dtype, part)
        self.sinks = sinks(spec, dtype, self.heads)
        self.splits = {} if self.sinks is None else {"sinks": (Split(0, part, "tp"),)}

    def forward(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        tensor = batch.among(self.part)
        narrow, turning, queries = self.narrow(x, batch)
        k, v = self.keys(narrow, turning, rotary)
        out = batch.exchange.attend(self.queries(queries, rotary), k, v, batch.cu_seqlens, self.masking, self.sinks)
        return self.output(out.flatten(1), tensor)  # type: ignore[no-any-return]

    def narrow(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Of all tokens of the block: what keys and values are made of [t, kv_rank], the part of the keys that turns
        [t, rope_dim], and what queries are made of.
        """
        latent, gather = self.latent, batch.among(self.part).gather
        widths = [latent.kv_rank, latent.rope_dim]
        narrow, turning = torch.split(self.key_down(x), widths, 1)
        own = [self.key_norm(narrow), turning]
        if self.query_down is None or self.query_norm is None:
            narrow, turning = torch.split(gather(torch.cat(own, 1)), widths, 1)
            return narrow, turning, follow(gather, x)
        own.append(self.query_norm(self.query_down(x)))
        narrow, turning, queries = torch.split(gather(torch.cat(own, 1)), [*widths, latent.q_rank], 1)
        return narrow, turning, queries

    def queries(self, x: Tensor, rotary: Rotary | None) -> Tensor:
        """[t, heads, nope_dim + rope_dim]."""
        q = torch.unflatten(self.query_up(x), 1, (self.heads, -1))
        if rotary is None:
            return q
        still, turning = torch.split(q, [self.latent.nope_dim, self.latent.rope_dim], 2)
        return torch.cat([still, rotate(turning, rotary)], 2)

    def keys(self, narrow: Tensor, turning: Tensor, rotary: Rotary | None) -> tuple[Tensor, Tensor]:
        """[t, heads, nope_dim + rope_dim], and values [t, heads, value_dim]."""
        made = torch.unflatten(self.key_up(narrow), 1, (self.heads, -1))
        still, values = torch.split(made, [self.latent.nope_dim, self.latent.value_dim], 2)
        turning = turning[:, None]
        turned = turning if rotary is None else rotate(turning, rotary)
        return torch.cat([still, turned.expand(-1, self.heads, -1)], 2), values
