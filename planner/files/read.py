"""Reads a file as a frozen struct, strictly: every error has `file:line:column`, the key path, and the fix.

JSON that other programs write is read whole: what would take far more memory than its text is refused before.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from planner.errors import InputError
from planner.files.bounded_read import TEXT, FileKind, read_bytes, read_text
from planner.files.error_location import from_file
from planner.files.every_error import every_error
from planner.files.yaml_text import FilePositions, KeyStep, key_path_text, load_yaml
from planner.units import MIB

T = TypeVar("T")


def read(path: str | Path, kind: type[T]) -> T:
    """The file at `path` as a `kind` (a msgspec Struct with a class attribute FORMAT). Raises InputError."""
    return parse(read_text(path), kind, str(path))


def format_of(path: str | Path) -> str:
    """The `format` of a file; empty where it has none. Raises InputError."""
    found = re.search(r"^[\"']?format[\"']?:\s*[\"']?([^\s\"']+)", read_text(path), re.MULTILINE)
    return found[1] if found else ""


def top_keys(path: str | Path) -> list[str]:
    """The keys at the top of a file; none where it is no mapping. Raises InputError."""
    data, _ = load_yaml(read_text(path), str(path))
    return [str(key) for key in data] if isinstance(data, dict) else []


def place(path: str | Path, *route: KeyStep) -> str:
    """The place of a value in a file, as errors name it: `job.yaml:3:8 (model)`; as far as its path is there."""
    try:
        _, places = load_yaml(read_text(path), str(path))
    except InputError:  # what was read is no longer there
        return f"{path} ({key_path_text(route)})"
    found = next(route[:length] for length in range(len(route), -1, -1) if not length or route[:length] in places)
    line, column = places.get(found, (1, 1))
    return f"{path}:{line}:{column} ({key_path_text(route)})"


def with_position(where: str) -> str:
    """A place such as `job.yaml (limits)` with line and column; any other text as it is."""
    found = re.fullmatch(r"(?P<path>.+\.ya?ml) \((?P<keys>[\w.\[\]-]+)\)", where)
    if not found or re.search(r":\d+$", found["path"]):
        return where
    route = [int(index) if index else key for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", found["keys"])]
    return place(found["path"], *route)


def parse(text: str, kind: type[T], name: str) -> T:
    """A text as a `kind`; errors call the file `name`. Raises InputError."""
    data, places = load_yaml(text, name)
    check_format(data, kind, name, places)
    try:
        return msgspec.convert(data, kind, strict=True, dec_hook=from_file)
    except msgspec.ValidationError as error:
        raise every_error(error, data, kind, name, places) from error


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
        made = getattr(kind, "MADE_FROM", {}).get(family, "")
        fix = f"{made} {name}" if made else f"begin it with `format: {expected}`"
        raise InputError(f"expected a {expected} file, this one {what}", where=where, fix=fix)
    if version.partition(".")[0] != wanted:
        raise InputError(
            f"format {stated} cannot be read by this version, which reads {expected}",
            where=where,
            fix="upgrade planner, or make the file again",
        )


MOST_BYTES = 384 * MIB  # in memory
OBJECT_BYTES = {b"{": 240, b"[": 80, b",": 40}  # of a mapping, a list, and each of several values in them, at most


def read_json(path: str | Path, fix: str, kind: FileKind = TEXT, infinite: bool = False) -> Any:
    """The value in a file; `infinite`: with NaN and Infinity, as Python writes them. Raises InputError, with `fix` for
    what is no JSON.
    """
    raw = read_bytes(path, kind)
    if sum(raw.count(sign) * size for sign, size in OBJECT_BYTES.items()) > MOST_BYTES:
        raise InputError("its JSON has too many values", where=str(path), fix=kind.smaller)
    try:
        constant = float if infinite else refuse_constant
        return json.loads(raw, parse_constant=constant, object_pairs_hook=lambda pairs: unique_keys(pairs, path))
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise InputError(f"this is not JSON, or not all of it: {error.msg}", where=where, fix=fix) from error
    except UnicodeDecodeError as error:
        raise InputError("this is not JSON: it is not UTF-8", where=str(path), fix=fix) from error
    except RecursionError as error:
        raise InputError("its JSON is nested too deeply", where=str(path), fix=fix) from error
    except ValueError as error:
        what = "it holds a number that is too long, or none of JSON's"
        raise InputError(what, where=str(path), fix=fix) from error


def refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def unique_keys(pairs: Sequence[tuple[str, Any]], path: str | Path) -> dict[str, Any]:
    """A mapping from pairs. Raises InputError where a key occurs twice."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InputError(f"the key `{twice}` occurs twice", where=f"{path} ({twice})", fix="remove one of the two")
    return mapping
