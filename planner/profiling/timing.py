"""Spans of time on a device: by the clock on a CPU, whose ranks share it, and by events on CUDA."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from planner.profiling.piece import Span


def span(call: Callable[[], object], device: torch.device, computes: bool = False) -> Span:
    """The span of a call that every rank begins together; from 0 on CUDA, where each rank has a device to itself.

    `computes`: it waits for nobody.
    """
    if device.type != "cuda":
        dist.barrier()
        began, used = time.perf_counter(), time.process_time()
        call()
        busy = time.process_time() - used
        return Span(began, time.perf_counter(), busy if computes and torch.get_num_threads() == 1 else None)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    dist.barrier()
    torch.cuda.synchronize(device)
    first.record()
    call()
    last.record()
    last.synchronize()
    return Span(0.0, first.elapsed_time(last) * 1e-3)
