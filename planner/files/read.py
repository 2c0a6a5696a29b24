"""Reads a file as a frozen struct, strictly: every error has `file:line:column`, the key path, and the fix."""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from planner.errors import InputError
from planner.files.error_location import from_file, located_error
from planner.files.yaml_text import FilePositions, load_yaml

T = TypeVar("T")


def read(path: str | Path, kind: type[T]) -> T:
    """The file at `path` as a `kind` (a msgspec Struct with a class attribute FORMAT). Raises InputError."""
    return parse(read_text(path), kind, str(path))


def read_text(path: str | Path) -> str:
    """The text of a file. Raises InputError, never OSError or UnicodeDecodeError."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # a byte-order mark is no part of it
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what = "this is not a text file: it is not UTF-8"
        raise InputError(what, where=f"{path}:{line}", fix="give a text file in UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the file: {reason}", where=str(path), fix="check the path") from error


def format_of(path: str | Path) -> str:
    """The `format` of a file; empty where it has none. Raises InputError."""
    found = re.search(r"^[\"']?format[\"']?:\s*[\"']?([^\s\"']+)", read_text(path), re.MULTILINE)
    return found[1] if found else ""


def parse(text: str, kind: type[T], name: str) -> T:
    """A text as a `kind`; errors call the file `name`. Raises InputError."""
    data, places = load_yaml(text, name)
    check_format(data, kind, name, places)
    try:
        return msgspec.convert(data, kind, strict=True, dec_hook=from_file)
    except msgspec.ValidationError as error:
        raise located_error(error, data, kind, name, places) from error


def check_format(data: Any, kind: type, name: str, places: FilePositions) -> None:
    """Raises InputError where the `format` of the data is of another kind of file, or of another major version."""
    expected: str = kind.FORMAT  # type: ignore[attr-defined]
    if not isinstance(data, dict):
        what = "the file is empty" if data is None else "this is not a planner file"
        raise InputError(what, where=f"{name}:1:1", fix=f"begin it with `format: {expected}`")
    stated = data.get("format")
    family, _, version = str(stated).partition("/")
    wanted_family, _, wanted = expected.partition("/")
    line, column = places.get(("format",), (1, 1))
    where = f"{name}:{line}:{column} (format)"
    if family != wanted_family:
        what = f"says {stated}" if stated else "does not say its format"
        raise InputError(
            f"expected a {expected} file, this one {what}", where=where, fix=f"begin it with `format: {expected}`"
        )
    if version.partition(".")[0] != wanted:
        raise InputError(
            f"format {stated} cannot be read by this version, which reads {expected}",
            where=where,
            fix="upgrade planner, or make the file again",
        )
