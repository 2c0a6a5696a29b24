"""Checks that a file can be written, before the work whose result goes there."""

import os
import tempfile
from pathlib import Path

from planner.errors import InputError

FILE_FIX = "name a file in a folder that can be written"
FOLDER_FIX = "name a folder that can be written"


def require_writable(path: Path, option: str) -> None:
    """Raises InputError where the file cannot be written. Missing folders are made; the file is neither made nor
    changed.
    """
    where = f"{option} {path}"
    exists = path_exists(path, where)
    if os.path.isdir(path):
        raise InputError("this is a folder, not a file", where=where, fix=FILE_FIX)
    make_folder(path.parent, where, FILE_FIX)
    if not os.access(path if exists else path.parent, os.W_OK):
        raise InputError("cannot write the file: Permission denied", where=where, fix=FILE_FIX)


def require_folder(path: Path, where: str) -> None:
    """Raises InputError where the folder is not there and cannot be made, or files cannot be created in it."""
    make_folder(path, where, FOLDER_FIX)
    try:
        tempfile.TemporaryFile(dir=path).close()  # permissions alone do not tell: some file systems are read-only
    except OSError as error:
        raise InputError(f"cannot write in the folder: {error.strerror}", where=where, fix=FOLDER_FIX) from error


def make_folder(path: Path, where: str, fix: str) -> None:
    """Raises InputError where the folder is not there and cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}", where=where, fix=fix) from error


def path_exists(path: Path, where: str) -> bool:
    """Whether there is something at `path`. Raises InputError where that cannot be told: names that are too long,
    folders that may not be read.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"cannot look there: {error.strerror}", where=where, fix="give another path") from error
    return True
