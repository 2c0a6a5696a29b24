"""Collectives over rows of which every rank has a different number, with gradients.

All are one all-to-all with uneven splits: no rank pads, and a rank sends only what others need.
"""

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor

from planner.launch.communication.collectives import with_backward
from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.traffic import TrafficKind

Sizes = Sequence[int]  # rows of each rank of the group


class RaggedGroup:
    """One rank of one group. Without a group, a rank by itself, every operation is the identity. `kind`: what it
    sends for.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, group: dist.ProcessGroup | None, meter: CommunicationMeter, kind: TrafficKind) -> None:
        self.group, self.meter, self.kind = group, meter, kind
        self.size = 1 if group is None else dist.get_world_size(group)
        self.index = 0 if group is None else dist.get_rank(group)

    def all_to_all(self, x: Tensor, sent: Sizes, received: Sizes) -> Tensor:
        """Send `sent[i]` rows of x `(rows, ...)` to rank i, receive `received[i]`. Backward reverses it."""
        return with_backward(
            x,
            lambda x: self.all_to_all_no_grad(x, sent, received),
            lambda gradient: self.all_to_all_no_grad(gradient, received, sent),
        )

    def all_gather(self, x: Tensor, sizes: Sizes) -> Tensor:
        """The rows of all ranks, `(sum(sizes), ...)`, from x `(sizes[index], ...)`. Backward reduce-scatters."""
        gather, scatter = self.all_gather_no_grad, self.reduce_scatter_no_grad
        return with_backward(x, lambda x: gather(x, sizes), lambda gradient: scatter(gradient, sizes))

    def reduce_scatter(self, x: Tensor, sizes: Sizes) -> Tensor:
        """This rank's rows `(sizes[index], ...)` of the ranks' sum of x `(sum(sizes), ...)`. Backward all-gathers."""
        gather, scatter = self.all_gather_no_grad, self.reduce_scatter_no_grad
        return with_backward(x, lambda x: scatter(x, sizes), lambda gradient: gather(gradient, sizes))

    def all_reduce_no_grad(self, x: Tensor) -> Tensor:
        """The sum of x (any shape) over the ranks, on all, without a gradient."""
        if self.group is None:
            return x
        out = x.detach().clone()
        with self.meter.measure(x.device, self.kind, 2 * x.nbytes * (self.size - 1) // self.size):
            dist.all_reduce(out, group=self.group)
        return out

    def all_to_all_no_grad(self, x: Tensor, sent: Sizes, received: Sizes) -> Tensor:
        """`all_to_all` without a gradient; the shapes are the same."""
        if self.group is None:
            return x
        out = x.new_empty(sum(received), *x.shape[1:])
        row_bytes = x.element_size() * x[:1].numel()
        with self.meter.measure(x.device, self.kind, row_bytes * (len(x) - sent[self.index])):
            dist.all_to_all_single(out, x.contiguous(), [*received], [*sent], group=self.group)
        return out

    def all_gather_no_grad(self, x: Tensor, sizes: Sizes) -> Tensor:
        """`all_gather` without a gradient; the shapes are the same."""
        if self.group is None:
            return x
        return self.all_to_all_no_grad(x.repeat(self.size, *[1] * (x.dim() - 1)), [len(x)] * self.size, sizes)

    def reduce_scatter_no_grad(self, x: Tensor, sizes: Sizes) -> Tensor:
        """`reduce_scatter` without a gradient; the shapes are the same."""
        if self.group is None:
            return x
        own_rows = sizes[self.index]
        parts = self.all_to_all_no_grad(x, sizes, [own_rows] * self.size)
        return parts.view(self.size, own_rows, *x.shape[1:]).sum(0)  # accumulates in float32 also where x is bfloat16
