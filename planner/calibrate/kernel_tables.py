"""Tables of kernel timings as CSV or CSV.gz files with a header, one row a measurement."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner import files
from planner.errors import InputError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ALIASES = {"latency": ("latency", "latency_ms_median")}
MAY_BE_ZERO = {"window_size"}  # 0: no window


@dataclass(frozen=True)
class KernelTable:
    """Columns of numbers and of words, (rows,) each, and the line of every row."""

    path: str
    lines: NDArray[np.int64]
    numbers: dict[str, Array]
    words: dict[str, NDArray[np.str_]]

    def where(self, mask: Mask) -> "KernelTable":
        """The rows of the mask."""
        numbers = {name: values[mask] for name, values in self.numbers.items()}
        return KernelTable(
            self.path, self.lines[mask], numbers, {name: values[mask] for name, values in self.words.items()}
        )

    def only(self, **words: str) -> "KernelTable":
        """The rows that have these words."""
        mask = np.ones(len(self.lines), np.bool_)
        for name, word in words.items():
            mask &= self.words[name] == word
        return self.where(mask)

    def location(self, row: int) -> str:
        """`path:line` of a row."""
        return f"{self.path}:{self.lines[row]}"

    @property
    def seconds(self) -> Array:
        """Measured seconds (rows,); tables hold milliseconds."""
        seconds: Array = self.numbers["latency"] * 1e-3
        return seconds


def read_table(
    path: str | Path, numbers: Mapping[str, float | None], words: Mapping[str, str | None] | None = None
) -> KernelTable:
    """A table with these columns, each with its default where the file lacks it; None: the column is required.

    Raises InputError for a missing column and, with its line, for a row without a positive number where one is needed.
    """
    header, rows = read_cells(Path(path))
    wanted = {**numbers, **(words or {})}
    at = {name: column_index(name, header, default is None, str(path)) for name, default in wanted.items()}
    lines = np.array([line for line, _ in rows], np.int64)
    columns = {name: [cells[index] for _, cells in rows] for name, index in at.items() if index is not None}
    return KernelTable(
        str(path),
        lines,
        {
            name: positive_numbers(name, columns[name], lines, str(path))
            if name in columns
            else np.full(len(lines), default)
            for name, default in numbers.items()
        },
        {name: np.array(columns.get(name, [default] * len(lines)), np.str_) for name, default in (words or {}).items()},
    )


def read_cells(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and each row's cells with its line number. Raises InputError."""
    read = files.read_csv(path)
    _, header = next(read, (0, []))
    rows = []
    for line, cells in read:
        if cells and len(cells) != len(header):
            message = f"{len(cells)} fields under a header of {len(header)}"
            raise InputError(message, where=f"{path}:{line}", fix="correct the line or remove it")
        rows += [(line, cells)] * bool(cells)
    if not rows:
        raise InputError("the table has no rows", where=str(path), fix="give a table with a header and measurements")
    return header, rows


def column_index(name: str, header: Sequence[str], needed: bool, path: str) -> int | None:
    """The index of a column under any of its names, None without it. Raises InputError where it is needed."""
    found = next((header.index(alias) for alias in ALIASES.get(name, (name,)) if alias in header), None)
    if found is None and needed:
        raise InputError(f"no column `{name}`", where=path, fix=f"the header has {', '.join(header)}")
    return found


def positive_numbers(name: str, cells: Sequence[str], lines: NDArray[np.int64], path: str) -> Array:
    """The cells as numbers above 0 (rows,). Raises InputError with the line."""
    values = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (value == 0 and name not in MAY_BE_ZERO):
            message = f"{name} is `{cell}`, not a positive number"
            raise InputError(message, where=f"{path}:{lines[row]}", fix="correct the line or remove it")
        values[row] = value
    return values
