"""One pre-norm transformer layer: attention over packed documents, then an MLP.

All work is token by token except attention, which goes through the batch's exchange.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from planner.models.batch import Batch
from planner.models.heads import Attention
from planner.models.held import Held
from planner.models.mlp import Mlp
from planner.models.rotary import Rotary
from planner.specs.model import Module

NORM_EPS = 1e-5


class Layer(nn.Module):
    """x [t, hidden] to the same. With full recompute, only x is kept for the backward pass."""

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, held: Held) -> None:
        super().__init__()
        self.recompute = held.recompute.get(layer, "none")
        self.attention_norm = norm(spec, dtype)
        self.attention = Attention(spec, layer, dtype, held)
        self.mlp_norm = norm(spec, dtype)
        self.mlp = Mlp(spec, spec.ffn, dtype, held)

    def forward(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        if self.recompute == "full" and torch.is_grad_enabled():
            return checkpoint(self._run, x, rotary, batch, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]
        return self._run(x, rotary, batch)

    def _run(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary, batch)
        return x + self.mlp(self.mlp_norm(x), batch)  # type: ignore[no-any-return]


def norm(spec: Module, dtype: torch.dtype) -> nn.Module:
    kind = nn.RMSNorm if spec.norm == "rms" else nn.LayerNorm
    return kind(spec.hidden, eps=NORM_EPS, dtype=dtype)
