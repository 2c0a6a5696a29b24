"""Sums of gradients over the ranks that hold the same weights, or the same shards of them.

Where weights are whole, their gradients are summed once a step, as in PyTorch DDP (arXiv 2006.15704): they travel in
buckets, so that small ones cost few calls, and become views of the sums. A large one is summed where it is.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planner.runtime.measure.step_clock import StepClock
from planner.runtime.state import bf16_reductions

BUCKET_BYTES = 25 * 2**20  # DDP's default

SumInPlace = Callable[[Tensor], None]  # of a flat tensor `(elements,)`, over a group of ranks


def timed_sum(group: dist.ProcessGroup, clock: StepClock, in_bf16: bool) -> SumInPlace:
    """A timed sum over a group of replicas, of flat gradients `(elements,)`, in place."""
    ranks, add = dist.get_world_size(group), bf16_reductions.all_reduce if in_bf16 else all_reduce

    def sum_gradient(gradient: Tensor) -> None:
        size = gradient.element_size()
        sent_size = bf16_reductions.SENT_DTYPE.itemsize if in_bf16 else size
        if gradient.is_cuda:  # it comes from the stream of reductions; this runs on another
            gradient.record_stream(torch.cuda.current_stream(gradient.device))
        with clock.record_collective("sync", (sent_size + size) * gradient.numel() * (ranks - 1) // ranks):
            add(gradient, group)

    return sum_gradient


def all_reduce(gradient: Tensor, group: dist.ProcessGroup) -> None:
    """Sum a gradient (any shape) over a group, in place."""
    dist.all_reduce(gradient, group=group)


class GradientBucket(NamedTuple):
    """Weights, all of one dtype, whose gradients are summed in one call."""

    weights: tuple[nn.Parameter, ...]
    add: SumInPlace

    @torch.no_grad()
    def sum(self) -> None:
        """Sums the gradients, which all are there."""
        gradients = [weight.grad.flatten() for weight in self.weights if weight.grad is not None]
        flat = torch.cat(gradients) if len(gradients) > 1 else gradients[0]
        self.add(flat)
        for weight, part in zip(self.weights, torch.split(flat, [*map(len, gradients)]), strict=True):
            weight.grad = part.view_as(weight)


def gradient_buckets(
    weights: Iterable[nn.Parameter], add: SumInPlace, most_bytes: int = BUCKET_BYTES
) -> Iterator[GradientBucket]:
    """The weights in their order, as many together as so many bytes hold, or one."""
    together: list[nn.Parameter] = []
    size = 0
    for weight in weights:
        if together and size + weight.nbytes > most_bytes:
            yield GradientBucket(tuple(together), add)
            together, size = [], 0
        together.append(weight)
        size += weight.nbytes
    if together:
        yield GradientBucket(tuple(together), add)
