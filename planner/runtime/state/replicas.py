"""Sums of gradients over the ranks that hold the same weights, or the same shards of them.

Where weights are whole, their gradients are summed once a step, as in PyTorch DDP (arXiv 2006.15704): they travel in
buckets, so that small ones cost few calls, and become views of the sums. A large one is summed where it is.
"""

from collections.abc import Callable, Iterator, Sequence

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


@torch.no_grad()
def sum_over_replicas(weights: Sequence[nn.Parameter], add: SumInPlace, most_bytes: int = BUCKET_BYTES) -> None:
    """Sums the gradients of these weights, which all have one; in buckets of at most so many bytes."""
    for bucket in buckets(weights, most_bytes):
        gradients = [weight.grad for weight in bucket if weight.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients]) if len(bucket) > 1 else gradients[0].flatten()
        add(flat)
        parts = torch.split(flat, [weight.numel() for weight in bucket])
        for weight, part in zip(bucket, parts, strict=True):
            weight.grad = part.view_as(weight)


def buckets(weights: Sequence[nn.Parameter], most_bytes: int) -> Iterator[list[nn.Parameter]]:
    """The weights in their order, as many together as so many bytes hold, or one."""
    bucket: list[nn.Parameter] = []
    for weight in weights:
        if bucket and sum(each.nbytes for each in bucket) + weight.nbytes > most_bytes:
            yield bucket
            bucket = []
        bucket.append(weight)
    if bucket:
        yield bucket
