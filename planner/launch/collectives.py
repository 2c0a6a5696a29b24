"""The collectives the runtime uses, one at a time over a group, timed: what a profile of a machine is made of."""

import time
from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor

Collective = Literal["all_to_all", "all_gather", "reduce_scatter", "p2p"]
# torch 2.13 gave two of them new names, and warns about the old ones.
ALL_GATHER = dist.all_gather_single if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor
REDUCE_SCATTER = dist.reduce_scatter_single if hasattr(dist, "reduce_scatter_single") else dist.reduce_scatter_tensor

COLLECTIVES: tuple[Collective, ...] = get_args(Collective)


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

    The size is the larger end of the collective on one rank: what an all-to-all or a reduce-scatter starts from, what
    an all-gather ends with, what p2p sends to the next rank of a ring while as much comes from the one before.
    """
    call = prepare(collective, group, size_bytes, device)
    seconds = []
    for _ in range(warmup + repeats):
        dist.barrier(group)
        began = _now(device)
        call()
        seconds.append(_now(device) - began)
    return seconds[warmup:]


def prepare(
    collective: Collective, group: dist.ProcessGroup, size_bytes: int, device: torch.device
) -> Callable[[], None]:
    """The collective over buffers of this size, rounded up to equal parts of whole numbers.

    What is received lies in memory that is new in each call, as in a step: on a CPU its pages come with the first use.
    """
    ranks = dist.get_world_size(group)
    part = max(1, -(-size_bytes // (4 * ranks)))  # float32: the dtype in which gradients are reduced
    whole, piece = torch.zeros(ranks * part, device=device), torch.zeros(part, device=device)
    if collective == "all_to_all":
        return lambda: _discard(dist.all_to_all_single(torch.empty_like(whole), whole, group=group))
    if collective == "all_gather":
        return lambda: _discard(ALL_GATHER(torch.empty_like(whole), piece, group=group))
    if collective == "reduce_scatter":
        return lambda: _discard(REDUCE_SCATTER(torch.empty_like(piece), whole, group=group))
    return lambda: _ring(whole, torch.empty_like(whole), group)


def _ring(sent: Tensor, received: Tensor, group: dist.ProcessGroup) -> None:
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
    """A synchronous collective returns nothing worth keeping."""


def _now(device: torch.device) -> float:
    """The time once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
