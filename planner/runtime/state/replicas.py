"""Sums of gradients over the ranks that hold the same weights, or the same shards of them.

Where weights are whole, their gradients are summed once a step, as in PyTorch DDP (arXiv 2006.15704): they travel in
buckets, so that small ones cost few calls, and become views of the sums. A large one is summed where it is.

Reductions in bfloat16 send that and sum in float32 (MegaScale-MoE, arXiv 2505.11432). A ring that sums in bfloat16
rounds at every rank. Here each rank rounds its gradients once; an all-to-all gives every rank the parts that it
reduces, which it sums in float32: half the bytes of a reduce-scatter in float32. Where all ranks need the sums
(ZeRO-0), these are all-gathered in float32: three quarters of an all-reduce. With HSDP, sums over shards were rounded
already, and are summed over replicas in float32.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from planner.launch.communication import ALL_GATHER
from planner.runtime.measure.step_clock import StepClock

SENT_DTYPE = torch.bfloat16  # of gradients that travel in half the bytes of float32
BUCKET_BYTES = 25 * 2**20  # DDP's default

SumInPlace = Callable[[Tensor], None]  # of a flat tensor `(elements,)`, over a group of ranks


def timed_sum(group: dist.ProcessGroup, clock: StepClock, in_bf16: bool) -> SumInPlace:
    """A timed sum over a group of replicas, of flat gradients `(elements,)`, in place."""
    ranks, add = dist.get_world_size(group), all_reduce_in_bf16 if in_bf16 else dist.all_reduce

    def sum_gradient(gradient: Tensor) -> None:
        size = gradient.element_size()
        sent_size = SENT_DTYPE.itemsize if in_bf16 else size
        if gradient.is_cuda:  # it comes from the stream of reductions; this runs on another
            gradient.record_stream(torch.cuda.current_stream(gradient.device))
        with clock.record_collective("sync", (sent_size + size) * gradient.numel() * (ranks - 1) // ranks):
            add(gradient, group=group)

    return sum_gradient


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


def reduce_scatter_in_bf16(output: Tensor, input: Tensor, group: dist.ProcessGroup) -> None:
    """Writes to `output` (n,) this rank's part of the sum of all ranks' `input` (ranks * n,)."""
    ranks = dist.get_world_size(group)
    sent = input.to(SENT_DTYPE)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    torch.sum(received.view(ranks, -1), 0, dtype=output.dtype, out=output)


def all_reduce_in_bf16(x: Tensor, group: dist.ProcessGroup) -> None:
    """Sums x (n,) over the ranks, in place."""
    ranks = dist.get_world_size(group)
    padded = F.pad(x, (0, -len(x) % ranks))
    part = x.new_empty(len(padded) // ranks)
    reduce_scatter_in_bf16(part, padded, group)
    ALL_GATHER(padded, part, group=group)
    x.copy_(padded[: len(x)])
