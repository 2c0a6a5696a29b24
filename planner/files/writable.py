"""Whether a file could be written, asked before the work whose result it is to take."""

import os
from pathlib import Path

from planner.errors import InputError

FIX = "name a file in a folder that can be written"


def require_writable(path: Path, option: str) -> None:
    """Raises InputError when not. Folders that are missing are made; the file is left as it is, or not there."""
    where = f"{option} {path}"
    if path.is_dir():
        raise InputError("this is a folder, not a file", where=where, fix=FIX)
    require_folder(path.parent, where)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError("cannot write the file: Permission denied", where=where, fix=FIX)


def require_folder(path: Path, where: str) -> None:
    """Raises InputError when it is not there and cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}", where=where, fix=FIX) from error
