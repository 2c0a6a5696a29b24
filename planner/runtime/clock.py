"""When things happen on this rank's device: the host's clock, or events on the streams of a GPU."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from planner.plan.task import Phase

Mark = float | torch.cuda.Event


@dataclass(slots=True)
class Call:
    """One collective of a gather or a sync, which FSDP2 issues inside a forward or a backward."""

    phase: Phase
    start: Mark
    end: Mark
    sent_bytes: int


@dataclass(slots=True)
class Clock:
    """Marks now, seconds later: reading an event would wait for the device."""

    device: torch.device
    rank: int = 0
    one_machine: bool = True  # whose ranks share the host's clock
    began: float = 0.0  # on the clock of the host
    late: float = 0.0  # after the first rank to begin
    first: Mark = 0.0
    calls: list[Call] = field(default_factory=list)  # of the task that runs

    def start(self) -> None:
        """All ranks begin a step together, with nothing left to do from before."""
        self.wait()
        dist.barrier()
        self.wait()
        self.began, self.first = time.perf_counter(), self.mark()

    def stop(self) -> float:
        """Seconds that this rank worked; all ranks agree when the step began: when the first of them did."""
        self.wait()
        worked = time.perf_counter() - self.began
        if self.one_machine:
            earliest = torch.tensor(self.began, dtype=torch.float64, device=self.device)
            dist.all_reduce(earliest, dist.ReduceOp.MIN)
            self.late = self.began - earliest.item()
        return self.late + worked

    def mark(self) -> Mark:
        """Now, on the current stream."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, mark: Mark) -> float:
        """From the start of a step that has stopped to a mark in it."""
        if isinstance(mark, torch.cuda.Event) and isinstance(self.first, torch.cuda.Event):
            return float(self.late + self.first.elapsed_time(mark) * 1e-3)
        assert isinstance(mark, float) and isinstance(self.first, float)
        return self.late + mark - self.first

    def wait(self) -> None:
        """Until the device has done everything it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @contextmanager
    def call(self, phase: Phase, sent_bytes: int) -> Iterator[None]:
        """Note a collective of the current task."""
        start = self.mark()
        yield
        self.calls.append(Call(phase, start, self.mark(), sent_bytes))
