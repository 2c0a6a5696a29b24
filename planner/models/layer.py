"""One pre-norm transformer layer: grouped-query attention over packed documents, then an MLP.

All work is token by token except attention, which trades tokens for heads through the batch's exchange.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from planner.models.attention import packed_attention
from planner.models.batch import Batch
from planner.models.rotary import Rotary, rotate
from planner.specs.model import Decoder, Module, head_dim, kv_heads

NORM_EPS = 1e-5


class Attention(nn.Module):
    def __init__(self, spec: Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = spec.heads, kv_heads(spec), head_dim(spec)
        self.causal = isinstance(spec, Decoder)
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
        q, k, v = batch.exchange.seq_to_heads(q, k, v)
        out = packed_attention(q, k, v, batch.cu_seqlens, self.causal)
        return self.output(batch.exchange.heads_to_seq(out).reshape(tokens, self.heads * self.head_dim))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """SwiGLU (arXiv:2002.05202) when gated, else GELU."""

    def __init__(self, spec: Module, dtype: torch.dtype) -> None:
        super().__init__()
        bias = spec.bias == "all"
        self.gate = linear(spec.hidden, spec.ffn, bias, dtype) if spec.gated else None
        self.up = linear(spec.hidden, spec.ffn, bias, dtype)
        self.down = linear(spec.ffn, spec.hidden, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        return self.down(wide)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """x [t, hidden] to the same. With `recompute`, only x is kept for the backward pass."""

    def __init__(self, spec: Module, dtype: torch.dtype, *, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.attention_norm = norm(spec, dtype)
        self.attention = Attention(spec, dtype)
        self.mlp_norm = norm(spec, dtype)
        self.mlp = Mlp(spec, dtype)

    def forward(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._run, x, rotary, batch, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]
        return self._run(x, rotary, batch)

    def _run(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary, batch)
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


def linear(width: int, out: int, bias: bool, dtype: torch.dtype) -> nn.Linear:
    return nn.Linear(width, out, bias=bias, dtype=dtype)


def norm(spec: Module, dtype: torch.dtype) -> nn.Module:
    kind = nn.RMSNorm if spec.norm == "rms" else nn.LayerNorm
    return kind(spec.hidden, eps=NORM_EPS, dtype=dtype)
