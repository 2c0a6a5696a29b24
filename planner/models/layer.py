"""One layer of a network, block by block: self-attention or a state space, cross-attention, and an MLP or mixture of
experts.

All work is per token except attention (through the batch's sequence-parallel group), state spaces (which scan whole
documents) and the dispatch to experts.
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
    """One layer. Pre-norm: each block adds its output for the norm of x to x. Post-norm: it adds its output for x to x,
    and then applies the norm to the sum.

    autograd/recompute.py says what is recomputed in the backward pass.
    """

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, shard: Held) -> None:
        super().__init__()
        self.recompute = shard.recompute.get(layer, "none")
        self.normed_behind = spec.normed_behind
        self.blocks: list[str] = []  # names of the modules, in order
        for block in blocks(spec.layer_kind(layer)):
            self.blocks.append("mlp" if block == "experts" else block)
            setattr(self, f"{self.blocks[-1]}_norm", norm(spec, dtype))
            setattr(self, self.blocks[-1], build_block(block, spec, layer, dtype, shard))

    def forward(self, x: Tensor, encoding: Places | None, batch: Batch) -> Tensor:
        """x `(local_tokens, hidden)` to the same shape."""
        if self.recompute == "none" or not torch.is_grad_enabled():
            return self._run(x, encoding, batch)
        if self.recompute == "full":
            return whole(self._run, x, encoding, batch)
        if self.normed_behind:
            x = x + self._block("attention", x, encoding, batch)
            return whole(self._behind_attention, x, batch)
        for block in self.blocks:
            if block == "mlp":
                x = x + whole(self._mlp, x, batch)
            else:
                with made_again(self._norm(block), x) as normed:
                    x = x + self._block(block, normed, encoding, batch)
        return x

    def _run(self, x: Tensor, encoding: Places | None, batch: Batch) -> Tensor:
        for block in self.blocks:
            if self.normed_behind:
                x = self._norm(block)(x + self._block(block, x, encoding, batch))
            else:
                x = x + self._block(block, self._norm(block)(x), encoding, batch)
        return x

    def _behind_attention(self, x: Tensor, batch: Batch) -> Tensor:
        """Post-norm: everything after attention."""
        x = self._norm("attention")(x)
        return self._norm("mlp")(x + self._block("mlp", x, None, batch))  # type: ignore[no-any-return]

    def _norm(self, block: str) -> nn.Module:
        return getattr(self, f"{block}_norm")  # type: ignore[no-any-return]

    def _block(self, block: str, x: Tensor, encoding: Places | None, batch: Batch) -> Tensor:
        arguments = (encoding, batch) if block == "attention" else (batch,)
        return getattr(self, block)(x, *arguments)  # type: ignore[no-any-return]

    def _mlp(self, x: Tensor, batch: Batch) -> Tensor:
        return self._block("mlp", self._norm("mlp")(x), None, batch)


def build_block(block: str, spec: Module, layer: int, dtype: torch.dtype, shard: Held) -> nn.Module:
    """The module of one block."""
    moe, space = spec.routed, spec.recurrent
    if block == "state_space" and space:
        return StateSpaceBlock(spec, space, dtype, shard)
    if block == "experts" and moe:
        return Moe(spec, moe, layer, dtype, shard)
    if block == "cross_attention":
        return CrossAttention(spec, dtype, shard)
    return build_attention(spec, layer, dtype, shard) if block == "attention" else Mlp(spec, spec.ffn, dtype, shard)


def build_attention(spec: Module, layer: int, dtype: torch.dtype, shard: Held) -> nn.Module:
    """The module of self-attention: latent or grouped-query."""
    if spec.compressed:
        return LatentAttention(spec, spec.compressed, layer, dtype, shard)
    return Attention(spec, layer, dtype, shard)
