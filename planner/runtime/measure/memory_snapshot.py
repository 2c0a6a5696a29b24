"""Records the allocation history of a rank's GPU for pytorch.org/memory_viz: stack and task of each allocation.

It covers the start of the run, where memory mostly runs out if it does, and the last step, not those between: recording
costs time. Only private functions of torch offer it; they are called in this file only.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import torch

from planner.errors import InputError
from planner.launch import Worker

HISTORY_ENTRIES = 200_000  # last allocator events that are kept, at some KB of host memory each


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
