"""Gradient reductions that send bfloat16 and sum in float32 (MegaScale-MoE, arXiv 2505.11432).

A ring that sums in bfloat16 rounds at every rank. Here each rank rounds its gradients once; an all-to-all gives every
rank the parts that it reduces, which it sums in float32: half the bytes of a reduce-scatter in float32. Where all ranks
need the sums (ZeRO-0), these are all-gathered in float32: three quarters of an all-reduce. With HSDP, sums over shards
were rounded already, and are summed over replicas in float32.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from planner.launch.communication import ALL_GATHER

SENT_DTYPE = torch.bfloat16


def reduce_scatter(output: Tensor, input: Tensor, group: dist.ProcessGroup) -> None:
    """Writes to `output` (n,) this rank's part of the sum of all ranks' `input` (ranks * n,)."""
    ranks = dist.get_world_size(group)
    sent = input.to(SENT_DTYPE)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    torch.sum(received.view(ranks, -1), 0, dtype=output.dtype, out=output)


def all_reduce(x: Tensor, group: dist.ProcessGroup) -> None:
    """Sums x (n,) over the ranks, in place."""
    ranks = dist.get_world_size(group)
    padded = F.pad(x, (0, -len(x) % ranks))
    part = x.new_empty(len(padded) // ranks)
    reduce_scatter(part, padded, group)
    ALL_GATHER(padded, part, group=group)
    x.copy_(padded[: len(x)])
