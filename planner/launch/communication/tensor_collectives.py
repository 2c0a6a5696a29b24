"""Collectives of a tensor-parallel block: what its ranks all-gather before matrices, and reduce-scatter after them.

Shards of a packed batch differ by at most one unit of tokens, so each is padded to the largest, and equal collectives
suffice: the sequence-parallel pair of arXiv 2205.05198, which together send as much as one all-reduce. Each is the
backward of the other. These functions replace DTensor, whose operators cost the host a dispatch each: a tiny gated MLP
on one CPU rank, forward and backward, took ten times as long with its parallel styles (torch 2.13).
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.communication.collectives import ALL_GATHER, REDUCE_SCATTER, with_backward
from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.process_groups import ProcessGroups
from planner.models import NO_TENSOR_PARALLEL, EqualShard, TensorParallel
from planner.specs.sequence_sharding import even_sizes

Sizes = Sequence[int]  # rows of each rank


class TensorParallelGroup:
    """The `TensorParallel` of one rank, of `tokens` that the block shares in whole units.

    A row may stand for several tokens, as merged patches do: then every rank has proportionally fewer rows.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, group: dist.ProcessGroup, sizes: Sizes, meter: CommunicationMeter) -> None:
        self.group, self.sizes, self.tokens, self.meter = group, sizes, sum(sizes), meter
        self.shard = EqualShard(dist.get_rank(group), dist.get_world_size(group))

    def among(self, rows: Tensor) -> tuple[TensorParallel, Tensor]:
        """The block with these rows `(rows)` alone, and which of this rank's `(local_tokens)` are among them."""
        ends = torch.tensor([0, *accumulate(self.sizes)], device=rows.device)
        places = torch.searchsorted(rows, ends).tolist()
        sizes, index = [last - first for first, last in pairwise(places)], self.shard.index
        own = rows[places[index] : places[index + 1]] - sum(self.sizes[:index])
        return TensorParallelGroup(self.group, sizes, self.meter), own

    def local_rows(self, x: Tensor) -> Tensor:
        """This rank's rows `(local_tokens, ...)` of a replicated x `(tokens, ...)`."""
        sizes = self.rows_by_rank(len(x))
        return with_backward(x, self.own_rows, lambda gradient: self.all_gather_no_grad(gradient, sizes))

    def all_gather(self, x: Tensor) -> Tensor:
        """All-gather x `(local_tokens, ...)` to `(tokens, ...)`."""
        gather, scatter = self.all_gather_no_grad, self.reduce_scatter_no_grad
        return with_backward(x, lambda x: gather(x, self.sizes), lambda gradient: scatter(gradient, self.sizes))

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """Reduce-scatter partial sums x `(tokens, ...)` to `(local_tokens, ...)`."""
        sizes = self.rows_by_rank(len(x))
        gather, scatter = self.all_gather_no_grad, self.reduce_scatter_no_grad
        return with_backward(x, lambda x: scatter(x, sizes), lambda gradient: gather(gradient, sizes))

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """The sum of x (any shape) over the ranks; what follows it is the same on all, and so is its gradient."""
        return with_backward(x, self.all_reduce_no_grad, lambda gradient: gradient)

    @torch.no_grad()
    def all_reduce_max(self, x: Tensor) -> Tensor:
        """The maximum of x (any shape) over the ranks, without a gradient."""
        return self.all_reduce_no_grad(x, dist.ReduceOp.MAX)

    def rows_by_rank(self, count: int) -> Sizes:
        """Rows of each rank, where `count` rows in all stand for the block's tokens."""
        return [size * count // self.tokens for size in self.sizes] if count != self.tokens else self.sizes

    def own_rows(self, x: Tensor) -> Tensor:
        """This rank's rows `(local_tokens, ...)` of x `(tokens, ...)`: a view."""
        sizes = self.rows_by_rank(len(x))
        return x.narrow(0, sum(sizes[: self.shard.index]), sizes[self.shard.index])

    def all_gather_no_grad(self, x: Tensor, sizes: Sizes) -> Tensor:
        """The rows of every rank `(sum(sizes), ...)`, from this rank's x `(sizes[index], ...)`; without a gradient."""
        largest, ranks = max(sizes), len(sizes)
        sent = x.contiguous() if len(x) == largest else pad_shards([x], largest)
        out = x.new_empty(ranks * largest, *x.shape[1:])
        if largest:
            with self.meter.measure(x.device, "tp", sent.nbytes * (ranks - 1)):
                ALL_GATHER(out, sent, group=self.group)
        if min(sizes) == largest:
            return out
        return torch.cat([rows[:size] for rows, size in zip(torch.split(out, largest), sizes, strict=True)])

    def reduce_scatter_no_grad(self, x: Tensor, sizes: Sizes) -> Tensor:
        """This rank's rows `(sizes[index], ...)` of the ranks' sum of x `(sum(sizes), ...)`; without a gradient."""
        largest, ranks, size = max(sizes), len(sizes), sizes[self.shard.index]
        sent = x.contiguous() if min(sizes) == largest else pad_shards(torch.split(x, list(sizes)), largest)
        out = x.new_empty(largest, *x.shape[1:])
        if largest:
            with self.meter.measure(x.device, "tp", out.nbytes * (ranks - 1)):
                REDUCE_SCATTER(out, sent, group=self.group)
        return out if size == largest else out[:size]

    def all_reduce_no_grad(self, x: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
        """The reduction of x (any shape) over the ranks; without a gradient."""
        out, ranks = x.clone(memory_format=torch.contiguous_format), self.shard.count
        if out.numel():
            with self.meter.measure(x.device, "tp", 2 * out.nbytes * (ranks - 1) // ranks):
                dist.all_reduce(out, op, group=self.group)
        return out


def pad_shards(shards: Sequence[Tensor], rows: int) -> Tensor:
    """Shards `(at most rows, ...)`, each padded with zeros to `rows`, one after the other: `(shards * rows, ...)`."""
    parts = [part for x in shards for part in (x, x.new_zeros(rows - len(x), *x.shape[1:])) if len(part)]
    return torch.cat(parts) if parts else shards[0]


def tensor_parallel_over(
    groups: ProcessGroups, ranks: Sequence[int], tokens: int, unit: int, meter: CommunicationMeter
) -> TensorParallel:
    """This rank's `TensorParallel` for the tokens of one micro-batch, each of which comes to all ranks of the block."""
    if len(ranks) == 1 or not tokens:
        return NO_TENSOR_PARALLEL
    return TensorParallelGroup(groups[ranks], even_sizes(tokens, len(ranks), unit), meter)
