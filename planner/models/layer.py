"""One pre-norm transformer layer: attention over packed documents, then an MLP or a mixture of experts.

All work is token by token except attention, which goes through the batch's exchange, and the way to the experts.
"""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.heads import Attention
from planner.models.held import Held
from planner.models.latent import LatentAttention
from planner.models.mlp import Mlp
from planner.models.moe import Moe
from planner.models.norms import norm
from planner.models.recompute import made_again, whole
from planner.models.rotary import Rotary
from planner.specs.layers import Module


class Layer(nn.Module):
    """x [t, hidden] to the same. What it makes again in the backward pass: models/recompute.py."""

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, held: Held) -> None:
        super().__init__()
        self.recompute = held.recompute.get(layer, "none")
        self.attention_norm = norm(spec, dtype)
        self.attention = attention(spec, layer, dtype, held)
        self.mlp_norm = norm(spec, dtype)
        moe = spec.routed if spec.layer_kind(layer) == "moe" else None
        self.mlp = Moe(spec, moe, layer, dtype, held) if moe else Mlp(spec, spec.ffn, dtype, held)

    def forward(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        if self.recompute == "none" or not torch.is_grad_enabled():
            return self._run(x, rotary, batch)
        if self.recompute == "full":
            return whole(self._run, x, rotary, batch)
        with made_again(self.attention_norm, x) as normed:
            x = x + self.attention(normed, rotary, batch)
        return x + whole(self._mlp, x, batch)

    def _run(self, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary, batch)
        return x + self._mlp(x, batch)

    def _mlp(self, x: Tensor, batch: Batch) -> Tensor:
        return self.mlp(self.mlp_norm(x), batch)  # type: ignore[no-any-return]


def attention(spec: Module, layer: int, dtype: torch.dtype, held: Held) -> nn.Module:
    if spec.compressed:
        return LatentAttention(spec, spec.compressed, layer, dtype, held)
    return Attention(spec, layer, dtype, held)
