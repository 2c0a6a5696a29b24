"""One layer, block by block: attention over packed documents, also to what another module made of them, or a state
space, an MLP or a mixture of experts.

All work is token by token except attention, which goes through the batch's exchange, state spaces, which scan whole
documents, and the way to the experts.
"""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.cross import CrossAttention
from planner.models.heads import Attention
from planner.models.held import Held
from planner.models.latent import LatentAttention
from planner.models.mlp import Mlp
from planner.models.moe import Moe
from planner.models.norms import norm
from planner.models.places import Places
from planner.models.recompute import made_again, whole
from planner.models.state_space import StateSpaceBlock
from planner.specs.layers import Module
from planner.specs.layers.blocks import blocks


class Layer(nn.Module):
    """x [t, hidden] to the same: to x each block adds what it makes of the norm of x; or adds what it makes of x, and
    the norm is of the sum.

    What it makes again in the backward pass: models/recompute.py.
    """

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, held: Held) -> None:
        super().__init__()
        self.recompute = held.recompute.get(layer, "none")
        self.normed_behind = spec.normed_behind
        self.blocks: list[str] = []  # names of the modules, in order
        for block in blocks(spec.layer_kind(layer)):
            self.blocks.append("mlp" if block == "experts" else block)
            setattr(self, f"{self.blocks[-1]}_norm", norm(spec, dtype))
            setattr(self, self.blocks[-1], made(block, spec, layer, dtype, held))

    def forward(self, x: Tensor, places: Places | None, batch: Batch) -> Tensor:
        if self.recompute == "none" or not torch.is_grad_enabled():
            return self._run(x, places, batch)
        if self.recompute == "full":
            return whole(self._run, x, places, batch)
        if self.normed_behind:
            x = x + self._block("attention", x, places, batch)
            return whole(self._behind_attention, x, batch)
        for block in self.blocks:
            if block == "mlp":
                x = x + whole(self._mlp, x, batch)
            else:
                with made_again(self._norm(block), x) as normed:
                    x = x + self._block(block, normed, places, batch)
        return x

    def _run(self, x: Tensor, places: Places | None, batch: Batch) -> Tensor:
        for block in self.blocks:
            if self.normed_behind:
                x = self._norm(block)(x + self._block(block, x, places, batch))
            else:
                x = x + self._block(block, self._norm(block)(x), places, batch)
        return x

    def _behind_attention(self, x: Tensor, batch: Batch) -> Tensor:
        """Where norms are of sums, from that of attention on."""
        x = self._norm("attention")(x)
        return self._norm("mlp")(x + self._block("mlp", x, None, batch))  # type: ignore[no-any-return]

    def _norm(self, block: str) -> nn.Module:
        return getattr(self, f"{block}_norm")  # type: ignore[no-any-return]

    def _block(self, block: str, x: Tensor, places: Places | None, batch: Batch) -> Tensor:
        where = (places, batch) if block == "attention" else (batch,)
        return getattr(self, block)(x, *where)  # type: ignore[no-any-return]

    def _mlp(self, x: Tensor, batch: Batch) -> Tensor:
        return self._block("mlp", self._norm("mlp")(x), None, batch)


def made(block: str, spec: Module, layer: int, dtype: torch.dtype, held: Held) -> nn.Module:
    """The module of one block."""
    moe, space = spec.routed, spec.recurrent
    if block == "state_space" and space:
        return StateSpaceBlock(spec, space, dtype, held)
    if block == "experts" and moe:
        return Moe(spec, moe, layer, dtype, held)
    if block == "cross_attention":
        return CrossAttention(spec, dtype, held)
    return attention(spec, layer, dtype, held) if block == "attention" else Mlp(spec, spec.ffn, dtype, held)


def attention(spec: Module, layer: int, dtype: torch.dtype, held: Held) -> nn.Module:
    if spec.compressed:
        return LatentAttention(spec, spec.compressed, layer, dtype, held)
    return Attention(spec, layer, dtype, held)
