"""Reads JSON strictly: a field that is missing or has another type than planner writes is an error that names it.

msgspec does not serve here: a trace has many fields of other programs, and every error names the record and the fix.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import PLANNED_TRACE, read_json
from planner.simulate.trace_records import TraceRecord

REWRITE_FIX = "write it again with `planner simulate PLAN --trace FILE` or `planner run PLAN --trace FILE`"
FOREIGN_FIX = "give a trace that planner wrote; `planner replay` reads those of PyTorch's profiler"


def read_json_object(path: Path) -> TraceRecord:
    """The JSON object in a file, plain or gzipped. Raises InputError."""
    found = read_json(path, FOREIGN_FIX, PLANNED_TRACE)
    if not isinstance(found, dict):
        raise InputError("this is not a trace that planner wrote", where=str(path), fix=FOREIGN_FIX)
    return found


class JsonObject:
    """A JSON object of a file, read field by field; every method that reads one raises InputError."""

    __slots__ = ("fields", "file", "route")

    def __init__(self, fields: Any, file: str, route: str) -> None:
        self.file, self.route = file, route
        if not isinstance(fields, dict):
            raise InputError("a JSON object is expected here", where=f"{file} ({route})", fix=REWRITE_FIX)
        self.fields: TraceRecord = fields

    def location(self, key: str) -> str:
        """File and path of a field, for errors."""
        return f"{self.file} ({f'{self.route}.{key}' if self.route else key})"

    def error_at(self, key: str, what: str) -> InputError:
        return InputError(what, where=self.location(key), fix=REWRITE_FIX)

    def field(self, key: str, kind: Any, default: Any = None) -> Any:
        """The field `key`, of exactly this type; without a default it is required."""
        if key not in self.fields and default is not None:
            return default
        if key not in self.fields:
            raise self.error_at(key, f"`{key}` is missing")
        found = self.fields[key]
        if not isinstance(found, kind) or isinstance(found, bool):
            raise self.error_at(key, f"`{key}` has another type than planner writes")
        return found

    def number(self, key: str, default: float | None = None) -> float:
        """The field as a finite number that is not negative."""
        found = self.field(key, (int, float), default)
        if not 0 <= found < math.inf:
            raise self.error_at(key, f"`{key}` is {found}: times begin at 0")
        return float(found)

    def integer(self, key: str, least: int, most: int) -> int:
        found: int = self.field(key, int)
        if not least <= found <= most:
            raise self.error_at(key, f"`{key}` is {found}, not between {least} and {most}")
        return found

    def choice(self, key: str, words: tuple[str, ...], default: str | None = None) -> Any:
        found = self.field(key, str, default)
        if found not in words:
            raise self.error_at(key, f"`{key}` is {found}, not one of {', '.join(words)}")
        return found

    def child(self, key: str) -> "JsonObject":
        return JsonObject(self.field(key, dict), self.file, f"{self.route}.{key}".strip("."))

    def children(self, key: str) -> Iterator["JsonObject"]:
        for number, fields in enumerate(self.field(key, list)):
            yield JsonObject(fields, self.file, f"{self.route}.{key}[{number}]".strip("."))
