"""Whether a file could be written, asked before the work whose result it is to take."""

import os
import tempfile
from pathlib import Path

from planner.errors import InputError

FIX = "name a file in a folder that can be written"
FOLDER_FIX = "name a folder that can be written"


def require_writable(path: Path, option: str) -> None:
    """Raises InputError when not. Folders that are missing are made; the file is left as it is, or not there."""
    where = f"{option} {path}"
    there = stands(path, where)
    if path.is_dir():
        raise InputError("this is a folder, not a file", where=where, fix=FIX)
    make_folder(path.parent, where, FIX)
    if not os.access(path if there else path.parent, os.W_OK):
        raise InputError("cannot write the file: Permission denied", where=where, fix=FIX)


def require_folder(path: Path, where: str) -> None:
    """Raises InputError when it is not there and cannot be made, or takes no file."""
    make_folder(path, where, FOLDER_FIX)
    try:
        tempfile.TemporaryFile(dir=path).close()  # rights alone do not tell: some folders take nothing from anybody
    except OSError as error:
        raise InputError(f"cannot write in the folder: {error.strerror}", where=where, fix=FOLDER_FIX) from error


def make_folder(path: Path, where: str, fix: str) -> None:
    """Raises InputError when it is not there and cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}", where=where, fix=fix) from error


def stands(path: Path, where: str) -> bool:
    """Whether something is there. Raises InputError where that cannot be told: of names that are too long, in folders
    that may not be read.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"cannot look there: {error.strerror}", where=where, fix="give another path") from error
    return True
