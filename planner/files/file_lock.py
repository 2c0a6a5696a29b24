"""File locks that end with the process that holds them, however it ends; whether one is held can be asked."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.errors import InputError

PATIENCE_S = 1.0  # a query whether the lock is held takes it for a moment


@contextmanager
def hold_lock(path: Path, who: str) -> Iterator[None]:
    """Holds the lock inside the block. Raises InputError where another process holds it; `who` describes that
    process.
    """
    handle = open_lock(path)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not try_lock(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise InputError(f"{who} already", where=str(path.parent), fix="end that one, or use another folder")
            time.sleep(PATIENCE_S / 100)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    handle = open_lock(path)
    try:
        return not try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def open_lock(path: Path) -> int:
    """A file descriptor of the lock's file, which is created. Raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", where=str(path), fix="choose another path") from error


def try_lock(handle: int, kind: int) -> bool:
    """Whether the lock was free, and is now held in this mode."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
