"""Reads files of embedding tables: YAML of `planner.tables/1`, or a CSV with a header of the same names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from planner import files
from planner.errors import InputError
from planner.specs.base import Name, Spec, spec_of, with_fields
from planner.specs.tables.table import CACHES, MAX_TABLES, ReusedRows, Table

COLUMNS = ("name", *(each for each in Table.__struct_fields__ if each != "hits"))


class TableFile(Spec, kw_only=True):
    """A file of embedding tables, `planner.tables/1`."""

    FORMAT: ClassVar[str] = "planner.tables/1"
    format: str
    name: str
    source: str = ""
    # A measured histogram, for the hits of tables that do not say theirs; rows that are never read have no lookups
    reuse: tuple[ReusedRows, ...] = ()
    tables: Annotated[dict[Name, Table], msgspec.Meta(min_length=1, max_length=MAX_TABLES)]


def read_tables(path: Path) -> dict[str, Table]:
    """The tables of a file, by name. Raises InputError."""
    if path.suffix == ".csv":
        return csv_tables(path)
    file = files.read(path, TableFile)
    hits = cache_hits(file.reuse)
    return {name: table if table.hits else with_fields(table, hits=hits) for name, table in file.tables.items()}


def cache_hits(reuse: Sequence[ReusedRows]) -> tuple[float, float] | None:
    """The share of lookups in each of `CACHES`, by a histogram of how often rows are read; None without one."""
    most_first = sorted(reuse, key=lambda each: -each.lookups / each.rows)
    import numpy as np

    rows = np.cumsum([0.0, *(each.rows for each in most_first)])
    lookups = np.cumsum([0.0, *(each.lookups for each in most_first)])
    if not lookups[-1]:
        return None
    low, high = np.interp(CACHES, rows / rows[-1], lookups / lookups[-1])
    return float(low), float(high)


def csv_tables(path: Path) -> dict[str, Table]:
    """The tables of a CSV whose header names its columns. Raises InputError."""
    found: dict[str, Table] = {}
    for where, cells in files.read_records(path, ", ".join(COLUMNS[:4]), {}):
        wrong = [column for column in cells if column not in COLUMNS]
        missing = [column for column in ("name", "rows", "dim") if column not in cells]
        if wrong or missing:
            what = f"`{wrong[0]}` is no column" if wrong else f"there is no column `{missing[0]}`"
            raise InputError(what, where=f"{path}:1", fix=f"columns are {', '.join(COLUMNS)}")
        add_table(found, cells.pop("name"), {name: value_of(text) for name, text in cells.items() if text}, where)
    if not found:
        raise InputError("the file has no tables", where=f"{path}:1", fix="a line for each")
    return found


def add_table(found: dict[str, Table], name: str, fields: Mapping[str, Any], where: str) -> None:
    """Add a table of these fields. Raises InputError where they are none, or there is one of its name."""
    if name in found or not name:
        what = f"two tables are called `{name}`" if name else "a table has no name"
        raise InputError(what, where=where, fix="give each table a name of its own")
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        fix = "letters, digits, and _ . + -"
        raise InputError(f"`{name}` is no name of a table", where=where, fix=fix) from error
    if len(found) == MAX_TABLES:
        raise InputError(f"there are more than {MAX_TABLES:,} tables", where=where, fix="join tables, or plan parts")
    try:
        found[name] = spec_of(Table, fields)
    except InputError as error:
        raise InputError(error.message, where=where, fix=error.fix) from error


def value_of(text: str) -> str | int | float:
    """A cell as a number, where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
