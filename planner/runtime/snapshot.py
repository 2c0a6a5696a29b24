"""The history of a rank's memory as a file for pytorch.org/memory_viz: who asked for what, when, in which task.

It is recorded while the run starts, where memory mostly runs out if it does, and in the last step. Steps between are
left alone: recording costs time. The marks around tasks are part of it. torch has this under private names only, which
are here and nowhere else.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import torch

from planner.errors import InputError
from planner.launch.worker import Worker

ENTRIES = 200_000  # of the allocator's last doings that are kept, at some KB of the host's memory each


class History(Protocol):
    """What the allocator did."""

    def start(self) -> None:
        """Record from now on, with nothing from before."""

    def stop(self) -> None:
        """Record no more, and forget."""

    def write(self, path: Path) -> None:
        """What was recorded, and what is held now. Raises OSError."""


class Cuda:
    """torch's own, of the current device. Stacks are Python's alone: names of C++ functions take minutes to find."""

    def start(self) -> None:
        self.stop()
        torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=ENTRIES)

    def stop(self) -> None:
        torch.cuda.memory._record_memory_history(None)

    def write(self, path: Path) -> None:
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]


class Snapshot:
    """What one rank records; without a folder, nothing."""

    def __init__(self, folder: Path | None, rank: int, history: History) -> None:
        self.folder, self.rank, self.history = folder, rank, history

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Around the whole run: written where it ends, or where memory runs out. Raises InputError."""
        if self.folder is None:
            yield
            return
        self.history.start()
        try:
            yield
        except torch.OutOfMemoryError:
            with suppress(InputError):  # that memory ran out is the news
                self.write(self.folder)
            raise
        self.write(self.folder)

    def step(self, last: bool) -> None:
        """One begins, which is the last of the run, or may be it."""
        if self.folder is None:
            return
        if last:
            self.history.start()
        else:
            self.history.stop()

    def write(self, folder: Path) -> None:
        path = folder / f"rank-{self.rank}.pickle"
        try:
            folder.mkdir(parents=True, exist_ok=True)  # on this node
            self.history.write(path)
        except OSError as error:
            fix = "name a folder with room"
            raise InputError(f"cannot write the file: {error.strerror}", where=str(path), fix=fix) from error


def snapshot(worker: Worker, folder: Path | None) -> Snapshot:
    """Of a rank on a GPU: runnable.py refuses a folder on the CPU."""
    return Snapshot(folder, worker.rank, Cuda())
