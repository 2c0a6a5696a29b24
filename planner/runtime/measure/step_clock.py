"""Timestamps on this rank's device: the host's clock, or CUDA events on the current stream."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from planner.launch.communication import barrier
from planner.plan.task import Phase

TimeMark = float | torch.cuda.Event


@dataclass(slots=True)
class CollectiveCall:
    """One collective of a gather or sync task, issued by FSDP2 inside a forward or backward."""

    phase: Phase
    start: TimeMark
    end: TimeMark
    sent_bytes: int


@dataclass(slots=True)
class StepClock:
    """Takes marks during a step, and turns them into seconds after it: reading an event would wait for the device."""

    device: torch.device
    rank: int = 0
    one_machine: bool = True  # whether all ranks share the host's clock
    began: float = 0.0  # start of the step on the host's clock
    late: float = 0.0  # seconds by which this rank started after the first
    first: TimeMark = 0.0
    calls: list[CollectiveCall] = field(default_factory=list)  # collectives of the current task

    def start(self) -> None:
        """Starts a step on all ranks together, with an idle device."""
        self.wait_for_device()
        barrier()
        self.wait_for_device()
        self.began, self.first = time.perf_counter(), self.mark()

    def stop(self) -> float:
        """Ends the step; returns its seconds on this rank, counted from when the first rank started. One all-reduce."""
        self.wait_for_device()
        elapsed = time.perf_counter() - self.began
        if self.one_machine:
            earliest = torch.tensor(self.began, dtype=torch.float64, device=self.device)
            dist.all_reduce(earliest, dist.ReduceOp.MIN)
            self.late = self.began - earliest.item()
        return self.late + elapsed

    def mark(self) -> TimeMark:
        """The current time: of the host, or an event on the current stream."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, mark: TimeMark) -> float:
        """Seconds from the start of the step to a mark in it; call it after `stop`."""
        if isinstance(mark, torch.cuda.Event) and isinstance(self.first, torch.cuda.Event):
            return float(self.late + self.first.elapsed_time(mark) * 1e-3)
        assert isinstance(mark, float) and isinstance(self.first, float)
        return self.late + mark - self.first

    def wait_for_device(self) -> None:
        """Waits until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @contextmanager
    def record_collective(self, phase: Phase, sent_bytes: int) -> Iterator[None]:
        """Records the collective inside the block as one of the current task."""
        start = self.mark()
        yield
        self.calls.append(CollectiveCall(phase, start, self.mark(), sent_bytes))
