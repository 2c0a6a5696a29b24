"""Times calls on a device: by clocks on a CPU, whose cores ranks may share, and by CUDA events on a GPU."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from planner.launch.communication import barrier
from planner.profiling.measurement import TimeSpan

Call = Callable[[], object]


def time_synchronised(call: Call, device: torch.device) -> TimeSpan:
    """Times a call that all ranks start together and in which they wait for each other."""
    if device.type == "cuda":
        return time_in_turns([call], 1, device)[0]
    barrier()
    began = time.perf_counter()
    call()
    return TimeSpan(began, time.perf_counter())


def time_after_work(work: Call, call: Call, repeats: int, device: torch.device) -> list[TimeSpan]:
    """Times `repeats` calls in which ranks wait for each other, each after some work of its rank."""
    if device.type == "cuda":
        return [time_in_turns([work, call], 1, device)[1] for _ in range(repeats)]
    barrier()
    spans = []
    for _ in range(repeats):
        work()
        began = time.perf_counter()
        call()
        spans.append(TimeSpan(began, time.perf_counter()))
    return spans


def time_in_turns(calls: Sequence[Call], repeats: int, device: torch.device) -> list[TimeSpan]:
    """Times calls that wait for no other rank: runs them in turn, `repeats` times; total span of each."""
    barrier()
    return _on_cuda(calls, repeats, device) if device.type == "cuda" else _on_cpu(calls, repeats)


def _on_cpu(calls: Sequence[Call], repeats: int) -> list[TimeSpan]:
    elapsed, busy = [0.0] * len(calls), [0.0] * len(calls)
    for _ in range(repeats):
        for index, call in enumerate(calls):
            began, used = time.perf_counter(), time.process_time()
            call()
            busy[index] += time.process_time() - used
            elapsed[index] += time.perf_counter() - began
    single_threaded = torch.get_num_threads() == 1
    return [TimeSpan(0.0, total, used if single_threaded else None) for total, used in zip(elapsed, busy, strict=True)]


def _on_cuda(calls: Sequence[Call], repeats: int, device: torch.device) -> list[TimeSpan]:
    torch.cuda.synchronize(device)
    marks = [_marked()]
    for _ in range(repeats):
        for call in calls:
            call()
            marks.append(_marked())
    marks[-1].synchronize()
    steps = [first.elapsed_time(last) * 1e-3 for first, last in pairwise(marks)]
    return [TimeSpan(-sum(steps[index :: len(calls)]), 0.0) for index in range(len(calls))]


def _marked() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
