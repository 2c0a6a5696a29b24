"""A file written bit by bit: whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from planner.errors import InputError


@contextmanager
def whole(path: str | Path) -> Iterator[BinaryIO]:
    """Bytes for `path`, through a temporary file beside it, so that no reader ever sees half of it. Raises InputError.

    Where a link leads, the file is written; a device or a pipe is written to, never replaced.
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
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
        temporary = ""
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", where=str(path), fix="choose another path") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
