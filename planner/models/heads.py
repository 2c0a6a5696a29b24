"""Grouped-query attention over packed documents: projections token by token, and heads over the batch's exchange."""

import torch
from torch import Tensor, nn

from planner.models.attention import Masking
from planner.models.batch import Batch
from planner.models.held import Held
from planner.models.linear import linear
from planner.models.rotary import Rotary, rotate
from planner.specs.layers import windowed
from planner.specs.model import Decoder, Module, head_dim, kv_heads


class Attention(nn.Module):
    """x [t, hidden] to the same."""

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, held: Held) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = spec.heads, kv_heads(spec), head_dim(spec)
        self.masking = Masking(isinstance(spec, Decoder), windowed(spec, layer))
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.query = linear(spec.hidden, queries, spec.bias != "none", dtype)
        self.key = linear(spec.hidden, keys, spec.bias != "none", dtype)
        self.value = linear(spec.hidden, keys, spec.bias != "none", dtype)
        self.output = linear(queries, spec.hidden, spec.bias == "all", dtype)

    def forward(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        tokens = len(x)
        q = self.query(x).view(tokens, self.heads, self.head_dim)
        k = self.key(x).view(tokens, self.kv_heads, self.head_dim)
        v = self.value(x).view(tokens, self.kv_heads, self.head_dim)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        out = batch.exchange.attend(q, k, v, batch.cu_seqlens, self.masking)
        return self.output(out.reshape(tokens, self.heads * self.head_dim))  # type: ignore[no-any-return]
