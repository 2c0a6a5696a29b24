"""Paths that a file names, not its user: what is written there stays in the file's folder, what is read is a file.

A plan or a checkpoint may come from anybody. What is typed on the command line is the user's own choice, and not asked.
"""

import os
from pathlib import Path

from planner.errors import InputError


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
