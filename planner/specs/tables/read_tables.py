"""Reads files of embedding tables: YAML of `planner.tables/1`, or a CSV with a header of the same names."""

from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from planner import files
from planner.errors import InputError
from planner.specs.base import Name, Spec, spec_of
from planner.specs.tables.table import MAX_TABLES, Table

COLUMNS = ("name", *Table.__struct_fields__)
NUMBERS = {"rows": int, "dim": int, "pooling": float, "skew": float}


class TableFile(Spec, kw_only=True):
    """A file of embedding tables, `planner.tables/1`."""

    FORMAT: ClassVar[str] = "planner.tables/1"
    format: str
    name: str
    source: str = ""
    tables: Annotated[dict[Name, Table], msgspec.Meta(min_length=1, max_length=MAX_TABLES)]


def read_tables(path: Path) -> dict[str, Table]:
    """The tables of a file, by name. Raises InputError."""
    return csv_tables(path) if path.suffix == ".csv" else files.read(path, TableFile).tables


def csv_tables(path: Path) -> dict[str, Table]:
    """The tables of a CSV whose header names its columns. Raises InputError."""
    header: list[str] = []
    found: dict[str, Table] = {}
    for line, cells in files.read_csv(path, strict=True):
        where = f"{path}:{line}"
        if not any(cells):
            continue
        if not header:
            header = checked_header([cell.strip() for cell in cells], where)
            continue
        if len(cells) != len(header):
            message = f"it has {len(cells)} cells, and the header has {len(header)}"
            raise InputError(message, where=where, fix="give each column a cell")
        row = dict(zip(header, map(str.strip, cells), strict=True))
        name = row.pop("name")
        if name in found or not name:
            what = f"two tables are called `{name}`" if name else "a table has no name"
            raise InputError(what, where=where, fix="give each table a name of its own")
        found[name] = csv_table(row, where)
        if len(found) > MAX_TABLES:
            raise InputError(
                f"there are more than {MAX_TABLES:,} tables", where=where, fix="join tables, or plan parts"
            )
    if not found:
        raise InputError("the file has no tables", where=f"{path}:1", fix=f"a header with {', '.join(COLUMNS[:4])}")
    return found


def checked_header(header: list[str], where: str) -> list[str]:
    """The header of a CSV of tables. Raises InputError where a column is unknown, doubled or missing."""
    wrong = [name for name in header if name not in COLUMNS or header.count(name) > 1]
    missing = [name for name in ("name", "rows", "dim") if name not in header]
    if wrong or missing:
        what = f"`{wrong[0]}` is no column, or one twice" if wrong else f"there is no column `{missing[0]}`"
        raise InputError(what, where=where, fix=f"columns are {', '.join(COLUMNS)}")
    return header


def csv_table(row: dict[str, str], where: str) -> Table:
    """A table of its cells. Raises InputError."""
    fields: dict[str, Any] = {}
    for name, text in row.items():
        try:
            if text:
                fields[name] = NUMBERS.get(name, str)(text)
        except ValueError as error:
            raise InputError(f"{name} is `{text}`", where=f"{where} ({name})", fix="a number") from error
    try:
        return spec_of(Table, fields)
    except InputError as error:
        raise InputError(error.message, where=where, fix=error.fix) from error
