"""One layer of a network, block by block: self-attention or a state space, cross-attention, and an MLP or mixture of
experts.

All work is per token except attention (through the batch's sequence-parallel group), state spaces (which scan whole
documents) and the dispatch to experts.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from planner.models.autograd.recompute import recomputing, recomputing_parts, run_part, run_recomputed
from planner.models.batch import Batch
from planner.models.layers.cross_attention import CrossAttention
from planner.models.layers.grouped_query_attention import GroupedQueryAttention
from planner.models.layers.latent_attention import LatentAttention
from planner.models.layers.linear import build_norm
from planner.models.layers.linear_attention import LinearAttentionBlock
from planner.models.layers.mixture_of_experts import MixtureOfExperts
from planner.models.layers.mlp import Mlp
from planner.models.layers.position_encoding import PositionEncoding
from planner.models.layers.state_space import StateSpaceBlock
from planner.models.sharding import ModuleShard
from planner.specs.layers import Module
from planner.specs.layers.blocks import kind_blocks, only_reads
from planner.specs.parallelism import SELECTIVE_PARTS, Recompute, parts_of

NORM_NAMES = {"before": "_norm", "behind": "_output_norm"}  # behind a block's name


class NetworkLayer(nn.Module):
    """One layer. Pre-norm: each block adds its output for the norm of x to x. Behind: it adds the norm of its output
    for x to x; or it has both. Post-norm: it adds its output for x to x, and then applies the norm to the sum.

    autograd/recompute.py says what is recomputed in the backward pass.
    """

    def __init__(self, spec: Module, layer: int, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        self.recompute: Recompute = shard.recompute.get(layer, "none")
        kind, self.post_norm = spec.layer_kind(layer), spec.has_post_norm
        self.only_reads, self.gated = only_reads(kind), spec.gates_residuals(kind)
        self.blocks: list[str] = []  # names of the modules, in order
        for block in kind_blocks(kind):
            self.blocks.append("mlp" if block == "experts" else block)
            for place in spec.norm_places:
                setattr(self, f"{self.blocks[-1]}{NORM_NAMES[place]}", build_norm(spec, dtype))
            setattr(self, self.blocks[-1], build_block(block, spec, layer, dtype, shard))
            if self.gated:
                setattr(self, f"{self.blocks[-1]}_gate", nn.Parameter(torch.empty(1, dtype=dtype)))

    def forward(self, x: Tensor, encoding: PositionEncoding | None, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape; documents that read nothing pass as they are."""
        readers = batch.readers() if self.only_reads else None
        if readers is None:
            return self._run(x, encoding, batch)
        return x.index_copy(0, readers.rows, self._run(x[readers.rows], None, readers.batch))

    def _run(self, x: Tensor, encoding: PositionEncoding | None, batch: Batch) -> Tensor:
        if self.recompute == "none" or not torch.is_grad_enabled():
            return self._run_blocks(x, encoding, batch)
        if self.recompute == "full":
            return run_recomputed(self._run_blocks, x, encoding, batch)
        with recomputing_parts(parts_of(self.recompute)):
            return self._run_parts(x, encoding, batch)

    def _run_parts(self, x: Tensor, encoding: PositionEncoding | None, batch: Batch) -> Tensor:
        """Forward with some parts recomputed. A norm and the dense MLP behind it are recomputed as one."""
        parts = parts_of(self.recompute)
        both = parts >= SELECTIVE_PARTS and isinstance(self._modules.get("mlp"), Mlp)
        if self.post_norm:
            x = x + self._block("attention", x, encoding, batch)
            if both:
                return run_recomputed(self._after_attention, x, batch)
            with self._normed("attention", x) as normed:
                return self._norm("mlp")(normed + self._block("mlp", normed, None, batch))  # type: ignore[no-any-return]
        for block in self.blocks:
            if block == "mlp" and both:
                x = x + self._left(block, run_recomputed(self._normed_mlp, x, batch))
            else:
                with self._normed(block, x) as normed:
                    x = x + self._left(block, self._block(block, normed, encoding, batch))
        return x

    def _normed(self, block: str, x: Tensor) -> AbstractContextManager[Tensor]:
        """Gives a block's norm of x, which is recomputed where norms are."""
        norm = self._norm(block)
        if isinstance(norm, nn.Identity):
            return nullcontext(x)
        return recomputing(norm, x) if "norm" in parts_of(self.recompute) else nullcontext(norm(x))

    def _run_blocks(self, x: Tensor, encoding: PositionEncoding | None, batch: Batch) -> Tensor:
        for block in self.blocks:
            if self.post_norm:
                x = self._norm(block)(x + self._block(block, x, encoding, batch))
            else:
                x = x + self._left(block, self._block(block, self._norm(block)(x), encoding, batch))
        return x

    def _left(self, block: str, y: Tensor) -> Tensor:
        """The output of a block, `(local_tokens, hidden)`, by its norm or the tanh of its gate, where it has one."""
        if f"{block}_output_norm" in self._modules:
            y = getattr(self, f"{block}_output_norm")(y)
        return y * getattr(self, f"{block}_gate").tanh() if self.gated else y

    def _after_attention(self, x: Tensor, batch: Batch) -> Tensor:
        """Post-norm: everything after attention."""
        x = self._norm("attention")(x)
        return self._norm("mlp")(x + self._block("mlp", x, None, batch))  # type: ignore[no-any-return]

    def _norm(self, block: str) -> nn.Module:
        return self._modules.get(f"{block}_norm") or nn.Identity()

    def _block(self, block: str, x: Tensor, encoding: PositionEncoding | None, batch: Batch) -> Tensor:
        module, arguments = getattr(self, block), (encoding, batch) if block == "attention" else (batch,)
        return run_part("mlp", module, x, *arguments) if isinstance(module, Mlp) else module(x, *arguments)

    def _normed_mlp(self, x: Tensor, batch: Batch) -> Tensor:
        return self._block("mlp", self._norm("mlp")(x), None, batch)


def build_block(block: str, spec: Module, layer: int, dtype: torch.dtype, shard: ModuleShard) -> nn.Module:
    """The module of one block."""
    moe, space, linear = spec.routed_experts, spec.ssm, spec.linear_attention_shape
    if block == "state_space" and space:
        return StateSpaceBlock(spec, space, dtype, shard)
    if block == "linear_attention" and linear:
        return LinearAttentionBlock(spec, linear, dtype, shard)
    if block == "experts" and moe:
        return MixtureOfExperts(spec, moe, layer, dtype, shard)
    if block == "cross_attention":
        return CrossAttention(spec, dtype, shard)
    return build_attention(spec, layer, dtype, shard) if block == "attention" else Mlp(spec, spec.ffn, dtype, shard)


def build_attention(spec: Module, layer: int, dtype: torch.dtype, shard: ModuleShard) -> nn.Module:
    """The module of self-attention: latent or grouped-query."""
    if spec.latent_attention:
        return LatentAttention(spec, spec.latent_attention, layer, dtype, shard)
    return GroupedQueryAttention(spec, layer, dtype, shard)
