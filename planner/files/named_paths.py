"""Paths, checked before the work whose result goes there: that they can be written, and where names in files lead.

A plan or a checkpoint may come from anybody: what is written to a path that it names stays in the file's folder, what
is read is a file. What is typed on the command line is the user's own choice, and may lead anywhere.
"""

import os
import tempfile
from pathlib import Path

from planner.errors import InputError
from planner.files.bounded_read import read_text


def inside(folder: Path, named: str, where: str) -> Path:
    """The path in `folder` that a file there names, to be written or removed; `where`: the place of the name. Raises
    InputError where it leads out, over links too, or is the folder itself.
    """
    path = folder / named
    try:
        leads_in = Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
    except ValueError:  # a null byte
        leads_in = False
    if not leads_in:
        what = f"`{named}` leads out of {folder}: what a file names is written in its own folder only"
        raise InputError(what, where=where, fix="name a folder or file within it, without .. and links")
    return path


def plain_name(name: str, where: str) -> str:
    """The name of a file beside the one that names it. Raises InputError for a path."""
    if name in ("", ".", "..") or {"/", "\\", "\0"} & {*name}:
        raise InputError(f"`{name}` is no plain name of a file", where=where, fix="name a file beside this one")
    return name


FILE_FIX = "name a file in a folder that can be written"
FOLDER_FIX = "name a folder that can be written"


def require_writable(path: Path, option: str) -> None:
    """Raises InputError where the file, or what is missing of its folders, cannot be made. Nothing is made here."""
    where = f"{option} {path}"
    if path_exists(path, where) and os.path.isdir(path):
        raise InputError("this is a folder, not a file", where=where, fix=FILE_FIX)
    there = next((each for each in (path, *path.absolute().parents) if path_exists(each, where)), path)
    if there != path and not there.is_dir():
        raise InputError(f"cannot make the folder {path.parent}: {there} is a file", where=where, fix=FILE_FIX)
    if not os.access(there, os.W_OK):
        raise InputError("cannot write the file: Permission denied", where=where, fix=FILE_FIX)


def require_unchanged(path: Path, text: str, fix: str, option: str = "-o") -> None:
    """Raises InputError where there is a file already, with another text, or none can be written; `fix`: what to do."""
    require_writable(path, option)
    if os.path.isfile(path) and read_text(path) != text:
        raise InputError("there is another file already", where=str(path), fix=fix)


def require_parent(path: Path, option: str = "-o") -> None:
    """Raises InputError where the folder that a file or folder is to be written in is not there."""
    missing = next((each for each in (path.parent, *path.parent.parents) if os.path.isdir(each)), path.parent)
    if missing != path.parent:
        first = missing / path.parent.relative_to(missing).parts[0]
        raise InputError(
            f"there is no folder {first}",
            where=f"{option} {path}",
            fix=f"mkdir -p {path.parent}, or name another with {option}",
        )


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
