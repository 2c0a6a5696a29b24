"""Rows of a workload: document lengths from a file, a folder of tokens, a distribution or a mix, batch by batch."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import InputError
from planner.specs.distributions import sample, sample_mix
from planner.specs.items import Size
from planner.specs.token_rows import open_offsets, row_lengths
from planner.specs.workload import Distribution, LengthsFile, TokensFolder, Workload

MAX_LENGTH = 10**9
MAX_ROWS = 2**24  # of the data: all rows up to the last one asked for are drawn
WHOLE = re.compile(r"-?[0-9]{1,18}")


Readers = dict[int, tuple[int, ...]]  # item → items of the next module


@dataclass(frozen=True, slots=True)
class Batch:
    """The next rows of the data: what the plan must place, and what was too long for the job."""

    items: dict[int, int]  # row → tokens, after rounding
    dropped: tuple[int, ...]
    streams: Mapping[str, dict[int, Size]] = field(default_factory=dict)  # of each other module: item → size
    feeds: Mapping[str, dict[str, Readers]] = field(default_factory=dict)  # module → module that reads it → who reads
    left_out: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # items of other modules that nobody is left to read


def batches(workload: Workload, count: int, first_row: int, seed: int, base: Path) -> list[Batch]:
    """`count` consecutive batches from `first_row`. Raises InputError when rows run out or a length is impossible."""
    end = first_row + count * workload.batch_rows
    if end > MAX_ROWS:
        what = f"{count} batches of {workload.batch_rows} rows end at row {end}, beyond row {MAX_ROWS}"
        raise InputError(what, where="workload", fix="ask for fewer batches, or an earlier first row")
    rows = read_rows(workload, end, seed, base)
    if len(rows) < end:
        raise InputError(
            f"{count} batches of {workload.batch_rows} rows end at row {end}, the data has {len(rows)} rows",
            where="workload",
            fix="ask for fewer batches, or give more rows",
        )
    starts = range(first_row, end, workload.batch_rows)
    return [make_batch(workload, rows, start) for start in starts]


def make_batch(workload: Workload, rows: list[int], start: int) -> Batch:
    """Rows `start`… of one batch, rounded up; too long ones are dropped."""
    items: dict[int, int] = {}
    dropped = []
    for row in range(start, start + workload.batch_rows):
        if rows[row] > workload.max_tokens:
            dropped.append(row)
        else:
            items[row] = -(-rows[row] // workload.round_to) * workload.round_to
    if not items:
        raise InputError(
            f"every row of the batch at row {start} is longer than {workload.max_tokens} tokens",
            where="workload.max_tokens",
            fix="raise max_tokens",
        )
    return Batch(items, tuple(dropped))


def read_rows(workload: Workload, count: int, seed: int, base: Path) -> list[int]:
    """The first `count` rows or more; fewer where the data ends."""
    lengths = workload.lengths
    if isinstance(lengths, LengthsFile):
        return read_lengths(base / lengths.path, lengths.column)
    if isinstance(lengths, TokensFolder):
        folder = base / lengths.path
        return row_lengths(open_offsets(folder), folder, 0, count)
    if isinstance(lengths, Distribution):
        return sample(lengths.name, count, seed)
    return sample_mix(lengths.parts, count, seed)


def read_lengths(path: Path, column: str) -> list[int]:
    """One length a line, or a column of a CSV; gzip when the name ends in .gz."""
    text = read_maybe_gzip(path)
    lines = text.splitlines()
    if not lines:
        raise InputError("the file of lengths is empty", where=str(path), fix="give one length a line")
    if WHOLE.fullmatch(lines[0].strip()):
        return [length(cell, path, number) for number, cell in enumerate(lines, 1) if cell.strip()]
    try:
        return read_column(text, column, path)
    except csv.Error as error:
        fix = "give a CSV, or one length a line"
        raise InputError(f"this is not CSV: {error}", where=str(path), fix=fix) from error


def read_column(text: str, column: str, path: Path) -> list[int]:
    """One column of a CSV whose first line names them."""
    rows = csv.reader(io.StringIO(text))
    header = next(rows, [])
    if column not in header:
        raise InputError(
            f"the file has no column `{column}`", where=f"{path}:1", fix=f"say column: one of {', '.join(header)}"
        )
    at = header.index(column)
    return [length(row[at] if at < len(row) else "", path, number) for number, row in enumerate(rows, 2) if row]


def read_maybe_gzip(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"the gzip file is damaged: {error}", where=str(path), fix="make or fetch it again") from error
    except UnicodeDecodeError as error:
        raise InputError(
            "the file of lengths is not text", where=str(path), fix="give a CSV, or one length a line"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the lengths: {reason}", where=str(path), fix="check the path") from error


def length(cell: str, path: Path, line: int) -> int:
    """A positive number of tokens."""
    text = cell.strip()
    if not WHOLE.fullmatch(text) or not 0 < int(text) <= MAX_LENGTH:
        fix = "a whole number of tokens, at least 1"
        raise InputError(f"`{text[:40]}` is no length", where=f"{path}:{line}", fix=fix)
    return int(text)
