"""Collectives of a group: an exchange of tensors whose backward is another exchange; the barrier at which ranks wait
for each other; and the collectives that the runtime uses, one at a time, timed: what the profile of a machine contains.
"""

import time
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor

TensorExchange = Callable[[Tensor], Tensor]
Collective = Literal["all_to_all", "all_gather", "reduce_scatter", "p2p"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
# Torch 2.13 renamed two of them, and warns about the old names.
ALL_GATHER = dist.all_gather_single if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor
REDUCE_SCATTER = dist.reduce_scatter_single if hasattr(dist, "reduce_scatter_single") else dist.reduce_scatter_tensor


def barrier(group: dist.ProcessGroup | None = None) -> None:
    """Returns when every rank of the group, or of the world, has called it. NCCL is told which GPU is this rank's, as
    it would guess by the rank's number and warn that it did.
    """
    on_gpu = dist.get_backend(group) == "nccl"
    dist.barrier(group, device_ids=[torch.cuda.current_device()] if on_gpu else None)


class Exchange(torch.autograd.Function):
    """An exchange between ranks whose backward is another exchange."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: TensorExchange, back: TensorExchange) -> Tensor:
        """What `exchange` makes of x (any shape); `back` takes the gradient of that to the gradient of x."""
        ctx.back, out = back, exchange(x)
        return x.view_as(x) if out is x else out  # an autograd function may not return its input itself

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of x, of its shape."""
        return ctx.back(gradient), None, None


def with_backward(x: Tensor, exchange: TensorExchange, back: TensorExchange) -> Tensor:
    """What `exchange` makes of x (any shape), whose backward is `back`."""
    out: Tensor = Exchange.apply(x, exchange, back)  # type: ignore[no-untyped-call]
    return out


def time_collective(
    collective: Collective,
    group: dist.ProcessGroup,
    size_bytes: int,
    device: torch.device,
    *,
    warmup: int = 2,
    repeats: int = 5,
) -> list[float]:
    """Seconds of each repetition on this rank. Every member of the group calls it, with the same arguments.

    `size_bytes` is the larger buffer of the collective on one rank: the input of an all-to-all or a reduce-scatter, the
    output of an all-gather, and for p2p what is sent to the next rank of a ring while the same amount comes from the
    previous one.
    """
    call = prepare(collective, group, size_bytes, device)
    seconds = []
    for _ in range(warmup + repeats):
        barrier(group)
        start = _now(device)
        call()
        seconds.append(_now(device) - start)
    return seconds[warmup:]


def prepare(
    collective: Collective, group: dist.ProcessGroup, size_bytes: int, device: torch.device
) -> Callable[[], None]:
    """The collective over buffers of this size, rounded up to equal shards of whole float32 numbers.

    Every call receives into newly allocated memory, as a step does: on a CPU its pages are mapped at first use.
    """
    ranks = dist.get_world_size(group)
    shard_size = max(1, -(-size_bytes // (4 * ranks)))  # float32 elements: the dtype in which gradients are reduced
    full, shard = torch.zeros(ranks * shard_size, device=device), torch.zeros(shard_size, device=device)
    if collective == "all_to_all":
        return lambda: _discard(dist.all_to_all_single(torch.empty_like(full), full, group=group))
    if collective == "all_gather":
        return lambda: _discard(ALL_GATHER(torch.empty_like(full), shard, group=group))
    if collective == "reduce_scatter":
        return lambda: _discard(REDUCE_SCATTER(torch.empty_like(shard), full, group=group))
    return lambda: _ring(full, torch.empty_like(full), group)


def _ring(sent: Tensor, received: Tensor, group: dist.ProcessGroup) -> None:
    """Exchange tensors of one shape with both neighbours on a ring."""
    ranks, index = dist.get_world_size(group), dist.get_rank(group)
    following = dist.get_global_rank(group, (index + 1) % ranks)
    preceding = dist.get_global_rank(group, (index - 1) % ranks)
    operations = [
        dist.P2POp(dist.isend, sent, following, group=group),
        dist.P2POp(dist.irecv, received, preceding, group=group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def _discard(_: object) -> None:
    """Drop the result of a synchronous collective."""


def _now(device: torch.device) -> float:
    """The time in seconds, once the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
