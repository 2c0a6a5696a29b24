"""GPU memory of a rank as torch's allocator counts it: bytes at the start of a step, peak of its passes, peak of its
updates; and the history of allocations for pytorch.org/memory_viz.

Peaks are reset at the start of a step and before its updates. The allocator counts on the host, so nothing waits for
the device. The history, with the stack of each allocation, covers the start of the run, where memory mostly runs out if
it does, and the last step, not those between: recording costs time. Only private functions of torch offer it; they are
called in this file only.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from planner.errors import InputError
from planner.launch import Worker
from planner.runtime.run_result import RankMemory

HISTORY_ENTRIES = 200_000  # last allocator events that are kept, at some KB of host memory each


class MemoryCounter(Protocol):
    """Counts allocated bytes of one device."""

    def allocated(self) -> int:
        """Bytes in tensors now."""

    def peaks(self) -> tuple[int, int]:
        """Peaks of allocated and of reserved bytes since the last reset."""

    def outside(self) -> int:
        """Bytes in use on the device now outside of this process's allocator."""

    def reset(self) -> None:
        """Resets the peaks to what is allocated now."""


@dataclass(frozen=True, slots=True)
class CudaMemoryCounter:
    """The counters of torch's CUDA allocator."""

    device: torch.device

    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    def peaks(self) -> tuple[int, int]:
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        return stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]

    def outside(self) -> int:
        free, total = torch.cuda.mem_get_info(self.device)
        return max(0, total - free - torch.cuda.memory_reserved(self.device))

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)


def memory_counter(device: torch.device) -> MemoryCounter | None:
    """Counter of a device; None for the CPU, whose memory torch does not count."""
    return CudaMemoryCounter(device) if device.type == "cuda" else None


class StepMemory:
    """Measures each step: `begin`, passes, `end_passes`, updates, `end`."""

    def __init__(self, counter: MemoryCounter | None) -> None:
        self.counter = counter
        self.held = self.passes = self.reserved = 0

    def begin(self) -> None:
        """Called when all that the step begins with is allocated."""
        if self.counter:
            self.counter.reset()
            self.held = self.counter.allocated()

    def end_passes(self) -> None:
        """Called after the last pass and gradient reduction."""
        if self.counter:
            self.passes, self.reserved = self.counter.peaks()
            self.counter.reset()

    def end(self) -> RankMemory | None:
        """The memory of the step; None on the CPU."""
        if not self.counter:
            return None
        update, reserved = self.counter.peaks()
        return RankMemory(self.held, self.passes, update, max(self.reserved, reserved), self.counter.outside())


class MemoryHistory(Protocol):
    """Recorder of allocator events."""

    def start(self) -> None:
        """Starts recording with an empty history."""

    def stop(self) -> None:
        """Stops recording and drops the history."""

    def write(self, path: Path) -> None:
        """Writes the history and the current allocations. Raises OSError."""


class CudaMemoryHistory:
    """The recorder of torch, of the current device. Python stacks only: resolving C++ symbols takes minutes."""

    def start(self) -> None:
        self.stop()
        torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=HISTORY_ENTRIES)

    def stop(self) -> None:
        torch.cuda.memory._record_memory_history(None)

    def write(self, path: Path) -> None:
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]


class MemorySnapshot:
    """Memory snapshots of one rank; without a folder, none."""

    def __init__(self, folder: Path | None, rank: int, history: MemoryHistory) -> None:
        self.folder, self.rank, self.history = folder, rank, history

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Context of the whole run: writes the snapshot at its end, or when memory runs out. Raises InputError."""
        if self.folder is None:
            yield
            return
        self.history.start()
        try:
            yield
        except torch.OutOfMemoryError:
            with suppress(InputError):  # the out-of-memory error matters more
                self.write(self.folder)
            raise
        self.write(self.folder)

    def begin_step(self, last: bool) -> None:
        """Called before each step; `last`: whether it is, or may be, the last of the run."""
        if self.folder is None:
            return
        if last:
            self.history.start()
        else:
            self.history.stop()

    def write(self, folder: Path) -> None:
        path = folder / f"rank-{self.rank}.pickle"
        try:
            folder.mkdir(parents=True, exist_ok=True)  # on each node
            self.history.write(path)
        except OSError as error:
            fix = "name a folder with room"
            raise InputError(f"cannot write the file: {error.strerror}", where=str(path), fix=fix) from error


def make_memory_snapshot(worker: Worker, folder: Path | None) -> MemorySnapshot:
    """Recorder for a rank on a GPU; the preflight checks refuse a folder on the CPU."""
    return MemorySnapshot(folder, worker.rank, CudaMemoryHistory())
