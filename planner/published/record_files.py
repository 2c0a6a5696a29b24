"""Records of CSV files in the published schema: text cells with typed access, and the position of each.

A blank cell means that the source does not state the fact. Columns are those of the schema's README; a column that a
file lacks is blank in all of its records, but for a few that identify a record and are required.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from types import MappingProxyType

from planner import files
from planner.errors import InputError
from planner.published.published_case import RecordOrigin

IDENTIFYING_COLUMNS = ("row_id", "source_id")  # a file with these columns claims to be of the schema
REQUIRED_COLUMNS = (*IDENTIFYING_COLUMNS, "model", "gpu", "n_gpus", "status")
BLANK = frozenset({"", "-", "--", "?", "none", "null", "nan", "n/a", "na", "unknown", "not given", "not stated"})
DIGITS = r"(?:[0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]+)"  # `13,4` has a decimal comma, and is refused
NUMBER = re.compile(rf"[~≈]?\s*([-+]?{DIGITS}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{{1,3}})?|[-+]?\.[0-9]+)\s*%?")
TRUE = frozenset({"1", "true", "yes", "y", "on", "x", "✓"})
FALSE = frozenset({"0", "false", "no", "n", "off"})
LARGEST = 1e18
EXTRA_CELLS = ""  # key of the cells beyond the last column


class UnusableRecord(Exception):
    """A record cannot be used: one of a few reasons, and the detail."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class PublishedRecord:
    """One published measurement: a row of a CSV file, with typed access to its cells."""

    cells: Mapping[str, str]
    file: str
    line: int  # 1-based, of its first line

    def text(self, name: str) -> str:
        """The cell without surrounding blanks; empty where it is blank."""
        return (self.cells.get(name) or "").strip()

    def stated(self, name: str) -> str:
        """The cell, empty also where it holds a word for unknown such as n/a."""
        text = self.text(name)
        return "" if text.lower() in BLANK else text

    def number(self, name: str) -> float | None:
        """A finite number, None where the cell is blank. Raises UnusableRecord."""
        text = self.stated(name)
        if not text:
            return None
        match = NUMBER.fullmatch(text)
        value = float(match[1].replace(",", "").replace("_", "")) if match else float("nan")
        if not isfinite(value) or abs(value) > LARGEST:
            raise UnusableRecord("unreadable number", f"{name}: {text[:60]}")
        return value

    def positive(self, name: str) -> float | None:
        """A number above 0, None where the cell is blank. Raises UnusableRecord."""
        value = self.number(name)
        if value is not None and value <= 0:
            raise UnusableRecord("impossible figures", f"{name}: {self.text(name)}")
        return value

    def count(self, name: str) -> int | None:
        """A whole number from 1, None where the cell is blank. Raises UnusableRecord."""
        value = self.number(name)
        if value is None:
            return None
        if value < 1 or value != int(value) or value > 10**9:
            raise UnusableRecord("unreadable number", f"{name}: {self.text(name)[:60]}")
        return int(value)

    def degree(self, name: str) -> int | None:
        """A whole number from 1, None where the cell is blank or 0, as some tables write. Raises UnusableRecord."""
        return None if self.number(name) == 0 else self.count(name)

    def flag(self, name: str) -> bool | None:
        """True or false, None where the cell is blank. Raises UnusableRecord."""
        text = self.stated(name).lower()
        if not text:
            return None
        if text in TRUE or text in FALSE:
            return text in TRUE
        raise UnusableRecord("unreadable number", f"{name}: {text[:60]}")

    def with_cells(self, values: Mapping[str, str]) -> "PublishedRecord":
        """The record with these cells replaced."""
        return replace(self, cells=MappingProxyType({**self.cells, **values}))

    @property
    def source(self) -> str:
        """The cell source_id, or the name of the file without its suffix."""
        return self.text("source_id") or Path(self.file).stem

    @property
    def origin(self) -> RecordOrigin:
        """Where the record comes from."""
        return RecordOrigin(self.source, self.text("row_id"), self.text("group_id"), self.file, self.line)


def is_published_file(path: Path) -> bool:
    """Whether the file's header has the identifying columns of the schema. Raises InputError."""
    _, header = next(files.read_csv(path), (0, []))
    return set(IDENTIFYING_COLUMNS) <= set(column_names(header))


def read_records(path: Path) -> Iterator[PublishedRecord]:
    """Every record below the header. Raises InputError."""
    records = files.read_csv(path, files.RECORDS, strict=True)
    last, first = next(records, (0, []))
    header = column_names(first)
    require_columns(header, path)
    for end, cells in records:
        line, last = last + 1, end
        if any(cell.strip() for cell in cells):
            by_column = dict(zip(header, cells, strict=False))
            by_column[EXTRA_CELLS] = "|".join(cells[len(header) :])
            yield PublishedRecord(MappingProxyType(by_column), path.name, line)


def column_names(header: list[str]) -> list[str]:
    return [name.strip().lower().lstrip("\ufeff") for name in header]


def require_columns(header: list[str], path: Path) -> None:
    missing = [name for name in REQUIRED_COLUMNS if name not in header]
    if missing:
        what = f"not a file of the published schema: no column {', '.join(missing)}"
        raise InputError(what, where=f"{path}:1", fix="add the columns, or move the file elsewhere")
