"""Spans of time on a device: by the clock on a CPU, whose ranks share it, and by events on CUDA."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from planner.profiling.piece import Span


def span(call: Callable[[], object], device: torch.device) -> Span:
    """The span of a call that every rank begins together; from 0 on CUDA, where each rank has a device to itself."""
    if device.type != "cuda":
        dist.barrier()
        began = time.perf_counter()
        call()
        return began, time.perf_counter()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    dist.barrier()
    torch.cuda.synchronize(device)
    first.record()
    call()
    last.record()
    last.synchronize()
    return 0.0, first.elapsed_time(last) * 1e-3

