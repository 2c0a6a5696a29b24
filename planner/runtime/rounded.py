"""Sums of gradients that travel in bfloat16 (MegaScale-MoE, arXiv 2505.11432).

A ring that sums in bfloat16 rounds at every rank. Here a rank rounds its own gradients once; all-to-all brings everyone
the parts that are his to sum, and he sums them in float32: half the bytes of a reduce-scatter. Where all ranks need the
sums (ZeRO-0), these are gathered as they are: three quarters of an all-reduce. Sums over shards (HSDP) have been
rounded before, and are added up over their replicas in float32.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from planner.launch.collectives import ALL_GATHER

TRAVELS = torch.bfloat16


def reduce_scatter(output: Tensor, input: Tensor, group: dist.ProcessGroup) -> None:
    """The sums of this rank's part [n] over the ranks' inputs [ranks x n]."""
    ranks = dist.get_world_size(group)
    sent = input.to(TRAVELS)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    torch.sum(received.view(ranks, -1), 0, dtype=output.dtype, out=output)


def all_reduce(x: Tensor, group: dist.ProcessGroup) -> None:
    """x [n] becomes the sums over the ranks."""
    ranks = dist.get_world_size(group)
    padded = F.pad(x, (0, -len(x) % ranks))
    part = x.new_empty(len(padded) // ranks)
    reduce_scatter(part, padded, group)
    ALL_GATHER(padded, part, group=group)
    x.copy_(padded[: len(x)])
