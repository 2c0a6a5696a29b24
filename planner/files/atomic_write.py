"""Atomic writes: a file appears complete or not at all.

Until then it has a name of its own beside it, `.NAME.XXXXXXXX.unfinished`, and whoever writes holds its lock. A process
that is killed leaves it, without the lock: the next write into the folder removes it.
"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from planner.errors import InputError
from planner.files.file_lock import try_lock

NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # raised by file systems that cannot sync a folder

UNFINISHED = ".unfinished"


@contextmanager
def atomic_write(path: str | Path, durable: bool = False) -> Iterator[BinaryIO]:
    """Opens `path` for writing through a temporary file beside it, which replaces it at the end of the block. Raises
    InputError.

    A link is followed; a device or a pipe is written to, never replaced. `durable`: after the block the file and its
    name are synced to disk, and survive a crash.
    """
    target = Path(os.path.realpath(path))
    temporary = ""
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):
            with target.open("wb", buffering=0) as out:
                yield out
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        handle, temporary = locked_temporary(target)
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            if durable:
                os.fsync(out.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)  # while it is locked
            temporary = ""
        if durable:
            sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", where=str(path), fix="choose another path") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def locked_temporary(target: Path) -> tuple[int, str]:
    """Descriptor and path of a new file beside `target`, with its lock. Raises OSError."""
    while True:
        handle, path = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=UNFINISHED)
        with suppress(OSError):  # a file system without locks, where nobody gets one
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, path
        os.close(handle)  # another process removed it before it was locked


def remove_leftovers(folder: Path) -> None:
    """Removes what writes of killed processes left in a folder."""
    names: list[str] = []
    with suppress(OSError):  # a folder that may be written, not read
        names = [name for name in os.listdir(folder) if name[:1] == "." and name.endswith(UNFINISHED)]
    for name in names:
        with suppress(OSError):  # removed by another, or no file of ours
            handle = os.open(folder / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if try_lock(handle, fcntl.LOCK_EX):
                    os.unlink(folder / name)
            finally:
                os.close(handle)


def sync_folder(folder: Path) -> None:
    """Syncs the names of a folder's files to disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(handle)
