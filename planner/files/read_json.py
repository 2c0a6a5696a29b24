"""JSON that other programs write, read whole: what would take far more memory than its text is refused before."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files.bounded_read import TEXT, FileKind, read_bytes
from planner.units import MIB

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
