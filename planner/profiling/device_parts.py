"""Parts of a device, on which calls of several threads run side by side: cores of a CPU, or SMs of a GPU.

A thread of a CPU has cores of its own by its affinity. A thread of a GPU has a green context of its own, with SMs and a
stream; or the whole device where its share is 1. What a call takes is the CPU time of its thread, which other load on
the machine does not lengthen, or on a GPU the time between events of its stream.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Barrier, Event, Thread
from typing import Any, NamedTuple

import torch

from planner.errors import InputError
from planner.launch import usable_cores

Call = Callable[[], object]
FIX = "leave --shares out: prices of shares stay assumed"
SM_CLUSTER = 8  # SMs of which a green context has a multiple, on devices since compute capability 9.0
WARM_UP = 1  # calls before those that count
LEAST_CALLS = 3  # of each thread that count
LOWER_QUARTILE = 0.25  # of the calls: what is above it waited for other load on the machine


def require_shares(shares: Sequence[float], device: torch.device) -> None:
    """Raises InputError for shares that the device cannot give."""
    units, unit = device_units(device), "core" if device.type == "cpu" else "SM"
    if units < 2:
        raise InputError(f"the device has {units} {unit} for this process, and no parts", where="--shares", fix=FIX)
    if device.type == "cuda" and not green_contexts():
        message = "torch of this environment has no green contexts, by which a GPU is divided"
        raise InputError(message, where="--shares", fix=f"torch 2.13 or later with CUDA 12.8 or later; or {FIX}")
    least = 1 if device.type == "cpu" else SM_CLUSTER
    able = ", ".join(f"{each:.3g}" for each in (least / units, 0.5, 1.0))
    for share in shares:
        whole = share * units
        if whole < least:
            what = "one core" if device.type == "cpu" else f"one cluster of {SM_CLUSTER} SMs"
            raise InputError(f"{share:g} of {units} {unit}s is below {what}", where="--shares", fix=f"such as {able}")
        if device.type == "cpu" and abs(whole - round(whole)) > 1e-9:
            what = f"{share:g} of {units} cores is no whole number of them"
            raise InputError(what, where="--shares", fix=f"such as {able}")


def device_units(device: torch.device) -> int:
    """Cores that this process may use, or SMs."""
    if device.type == "cpu":
        return usable_cores() if hasattr(os, "sched_getaffinity") else 1  # else no thread is given cores of its own
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def green_contexts() -> bool:
    """Whether this torch can divide a GPU."""
    return bool(getattr(getattr(torch.cuda, "green_contexts", None), "SUPPORTED", False))


def seconds_on_parts(
    makers: Sequence[Callable[[], Call]], shares: Sequence[float], device: torch.device, least_s: float
) -> list[float]:
    """Seconds of a call of each, side by side, each on its share: the lower quartile of those that ended while all ran.

    Each thread makes its own call, and repeats it until all have done so for `least_s`.
    """
    together = Together(tuple(shares), device, least_s, Barrier(len(makers)), [Event() for _ in makers])
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1 if len(makers) > 1 else max(1, round(shares[0] * device_units(device))))
    workers = [Thread(target=together.run, args=(at, make)) for at, make in enumerate(makers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.set_num_threads(before)
    if together.failed:
        raise together.failed[0]
    last = min(together.spans[at][-1].end for at in range(len(makers)))
    every = [together.spans[at] for at in range(len(makers))]
    return [quartile([each.seconds for each in spans if each.end <= last] or [spans[0].seconds]) for spans in every]


class CallSpan(NamedTuple):
    """When a call ended, and what it took by itself."""

    end: float
    seconds: float


@dataclass(frozen=True)
class Together:
    """Threads that repeat a call each, side by side on parts of a device, until all have done so for `least_s`."""

    shares: tuple[float, ...]
    device: torch.device
    least_s: float
    barrier: Barrier
    enough: Sequence[Event]  # of each thread
    spans: dict[int, list[CallSpan]] = field(default_factory=dict)
    failed: list[BaseException] = field(default_factory=list)

    def run(self, at: int, make: Callable[[], Call]) -> None:
        """Run one thread; where it fails, the others end too."""
        try:
            with part(at, self.shares, self.device):
                self.repeat(at, make())
        except BaseException as error:  # of whatever kind: the others would wait for ever
            self.failed.append(error)
            self.barrier.abort()
            for each in self.enough:
                each.set()

    def repeat(self, at: int, call: Call) -> None:
        """Repeat a call until every thread has had enough."""
        for _ in range(WARM_UP):
            timed(call, self.device)
        self.barrier.wait()
        began, spans = time.perf_counter(), self.spans.setdefault(at, [])
        while not all(each.is_set() for each in self.enough):
            seconds = timed(call, self.device)
            spans.append(CallSpan(time.perf_counter(), seconds))
            if spans[-1].end - began >= self.least_s and len(spans) >= LEAST_CALLS:
                self.enough[at].set()


def quartile(values: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(values)[int(LOWER_QUARTILE * (len(values) - 1))]


def timed(call: Call, device: torch.device) -> float:
    """Seconds of one call on its part of the device."""
    if device.type == "cuda":
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3
    own, every = time.thread_time(), time.process_time()
    call()
    spent = time.thread_time() - own
    workers = torch.get_num_threads()
    return max(spent, (time.process_time() - every) / workers) if workers > 1 else spent


@contextmanager
def part(at: int, shares: Sequence[float], device: torch.device) -> Iterator[None]:
    """The part of the device that the calling thread runs on: behind those of threads before it."""
    units = device_units(device)
    if device.type == "cpu":
        cores = sorted(os.sched_getaffinity(0))
        first = round(sum(shares[:at]) * units)
        os.sched_setaffinity(0, cores[first : first + max(1, round(shares[at] * units))])
        yield
        return
    torch.cuda.set_device(device)
    if shares[at] == 1.0:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            yield
        return
    count = max(SM_CLUSTER, round(shares[at] * units / SM_CLUSTER) * SM_CLUSTER)
    context: Any = torch.cuda.green_contexts.GreenContext.create(num_sms=count, device_id=device.index)
    context.set_context()
    try:
        with torch.cuda.stream(context.Stream()):
            yield
    finally:
        context.pop_context()
