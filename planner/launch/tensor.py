"""The ranks of a tensor-parallel block over a process group: what they gather in front of matrices, and add up behind.

Shards of a packed batch differ by at most one unit of tokens, so each is padded to the largest and the collectives of
equal parts do: the sequence-parallel pair of arXiv 2205.05198, whose two sends are those of one all-reduce. Backward of
either is the other. These few functions stand in for DTensor, whose operators cost the host a dispatch each: a tiny
gated MLP on one rank of a CPU, forward and backward, took ten times as long by its styles (torch 2.13).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.collectives import ALL_GATHER, REDUCE_SCATTER
from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.models.held import Part
from planner.models.tensor import ALONE, Tensors
from planner.specs.dealing import even_sizes

Sizes = Sequence[int]  # rows of each rank, the larger first


class Block:
    """The `Tensors` of one rank, of `tokens` that the block shares out in whole units.

    Rows may stand for several tokens each, as merged patches do: then there are as many fewer on every rank.
    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, group: dist.ProcessGroup, tokens: int, unit: int, meter: Meter) -> None:
        self.group, self.tokens, self.meter = group, tokens, meter
        self.part = Part(dist.get_rank(group), dist.get_world_size(group))
        self.sizes = even_sizes(tokens, self.part.of, unit)

    def mine(self, x: Tensor) -> Tensor:
        out: Tensor = _Mine.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def gather(self, x: Tensor) -> Tensor:
        out: Tensor = _Gather.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def scatter(self, x: Tensor) -> Tensor:
        out: Tensor = _Scatter.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def total(self, x: Tensor) -> Tensor:
        out: Tensor = _Total.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    @torch.no_grad()
    def largest(self, x: Tensor) -> Tensor:
        return self.all_reduce(x, dist.ReduceOp.MAX)

    def rows(self, count: int) -> Sizes:
        """Of each rank, of `count` rows in all that stand for the block's tokens."""
        return [size * count // self.tokens for size in self.sizes] if count != self.tokens else self.sizes

    def own(self, x: Tensor) -> Tensor:
        """This rank's rows of x [t, ...]: a view."""
        sizes = self.rows(len(x))
        return x.narrow(0, sum(sizes[: self.part.index]), sizes[self.part.index])

    def all_gather(self, x: Tensor, sizes: Sizes) -> Tensor:
        """Every rank's rows, of which x is this rank's."""
        most, ranks = sizes[0], len(sizes)
        sent = x.contiguous() if len(x) == most else padded([x], most)
        out = x.new_empty(ranks * most, *x.shape[1:])
        if most:
            with self.meter.measure(x.device, sent.nbytes * (ranks - 1)):
                ALL_GATHER(out, sent, group=self.group)
        if sizes[-1] == most:
            return out
        return torch.cat([rows[:size] for rows, size in zip(torch.split(out, most), sizes, strict=True)])

    def reduce_scatter(self, x: Tensor, sizes: Sizes) -> Tensor:
        """This rank's rows of the sum over the ranks."""
        most, ranks, size = sizes[0], len(sizes), sizes[self.part.index]
        sent = x.contiguous() if sizes[-1] == most else padded(torch.split(x, list(sizes)), most)
        out = x.new_empty(most, *x.shape[1:])
        if most:
            with self.meter.measure(x.device, out.nbytes * (ranks - 1)):
                REDUCE_SCATTER(out, sent, group=self.group)
        return out if size == most else out[:size]

    def all_reduce(self, x: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
        out, ranks = x.clone(memory_format=torch.contiguous_format), self.part.of
        if out.numel():
            with self.meter.measure(x.device, 2 * out.nbytes * (ranks - 1) // ranks):
                dist.all_reduce(out, op, group=self.group)
        return out


def padded(shards: Sequence[Tensor], rows: int) -> Tensor:
    """Shards of at most so many rows each, one after the other, each with zeros behind it up to as many."""
    parts = [part for x in shards for part in (x, x.new_zeros(rows - len(x), *x.shape[1:])) if len(part)]
    return torch.cat(parts) if parts else shards[0]


class _Mine(torch.autograd.Function):
    """The others' rows have gradients too: those that they found."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Block) -> Tensor:
        ctx.block, ctx.sizes = block, block.rows(len(x))
        return block.own(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.block.all_gather(gradient, ctx.sizes), None


class _Gather(torch.autograd.Function):
    """Every rank used every row, each for a part of what comes of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Block) -> Tensor:
        ctx.block = block
        return block.all_gather(x, block.sizes)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.block.reduce_scatter(gradient, ctx.block.sizes), None


class _Scatter(torch.autograd.Function):
    """Every rank's summand has the gradient of the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Block) -> Tensor:
        ctx.block, ctx.sizes = block, block.rows(len(x))
        return block.reduce_scatter(x, ctx.sizes)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.block.all_gather(gradient, ctx.sizes), None


class _Total(torch.autograd.Function):
    """What comes of the sum is the same on all ranks, and so is its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Block) -> Tensor:
        return block.all_reduce(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def block_of(groups: Groups, ranks: Sequence[int], tokens: int, unit: int, meter: Meter) -> Tensors:
    """How these ranks share the tokens of one micro-batch, each of which comes to all of them."""
    return Block(groups[ranks], tokens, unit, meter) if len(ranks) > 1 and tokens else ALONE
