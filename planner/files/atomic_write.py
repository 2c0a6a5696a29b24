"""Atomic writes: a file appears complete or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from planner.errors import InputError

NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # raised by file systems that cannot sync a folder


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
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as out:
            yield out
            if durable:
                out.flush()
                os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
        temporary = ""
        if durable:
            sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", where=str(path), fix="choose another path") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


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
