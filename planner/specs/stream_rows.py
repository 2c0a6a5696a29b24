"""Items of one stream: read from a CSV, or drawn."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from planner.errors import InputError
from planner.specs.distributions import sample, sample_mix
from planner.specs.items import UNITS, ItemSize, Size, size_faults
from planner.specs.layers import Module
from planner.specs.lengths import MAX_ROWS, WHOLE, length, read_lengths, read_maybe_gzip
from planner.specs.model import Model
from planner.specs.token_rows import open_offsets
from planner.specs.workload import LengthsFile, Stream, StreamDistribution, StreamFile, TokensFolder, Workload


@dataclass(frozen=True, slots=True)
class Item:
    number: int  # in its stream, from 0
    size: Size
    readers: Mapping[str, tuple[int, ...]]  # by module that reads it: its items
    where: str = ""  # it is said


def rows_there(workload: Workload, base: Path) -> int | None:
    """Rows of the data; None: they are drawn, and have no end."""
    lengths = workload.lengths
    if isinstance(lengths, LengthsFile):
        return len(read_lengths(base / lengths.path, lengths.column))
    return len(open_offsets(base / lengths.path)) - 1 if isinstance(lengths, TokensFolder) else None


def read_items(stream: StreamFile, name: str, model: Model, base: Path) -> Iterator[Item]:
    """All lines of a file. Raises InputError."""
    path, spec = base / stream.path, model.modules[name]
    readers = columns(stream, name, model.targets(name))
    rows = csv.reader(io.StringIO(read_maybe_gzip(path)))
    try:
        header = next(rows, [])
        for column in (stream.column, *readers.values()):
            if column not in header:
                fix = f"columns are {', '.join(header)}; say `column` for sizes, `reads` for who reads"
                raise InputError(f"the file has no column `{column}`", where=f"{path}:1", fix=fix)
        for number, row in enumerate(row for row in rows if row):
            line, cells = rows.line_num, dict(zip(header, row, strict=False))
            where = f"{path}:{line}"
            size = size_of(cells.get(stream.column, ""), name, spec, path, line)
            of = {target: numbers(cells.get(column, ""), where) for target, column in readers.items()}
            if not any(of.values()):
                message = f"item {number} of `{name}` is read by nobody"
                raise InputError(message, where=where, fix="name who reads it, or remove the line")
            yield Item(number, size, of, where)
    except csv.Error as error:
        raise InputError(f"this is not CSV: {error}", where=str(path), fix="give a CSV with a header") from error


def columns(stream: StreamFile, name: str, targets: tuple[str, ...]) -> dict[str, str]:
    """By module that reads: the column that says which of its items do. Raises InputError."""
    said = dict.fromkeys(targets, stream.reads) if isinstance(stream.reads, str) else stream.reads
    if set(said) != set(targets) or (len(targets) > 1 and isinstance(stream.reads, str)):
        message = f"`{name}` feeds {' and '.join(targets)}, and `reads` is not of each of them"
        fix = f"reads: {{{', '.join(f'{target}: column' for target in targets)}}}"
        raise InputError(message, where=f"workload.streams.{name}.reads", fix=fix)
    return dict(said)


def size_of(cell: str, name: str, spec: Module, path: Path, line: int) -> Size:
    """A cell such as 4096, or 1024+256. Raises InputError."""
    counts = tuple(length(part, path, line) for part in cell.split("+"))
    try:
        size = sized(spec, counts)
        for message, fix in size_faults(spec, name, size):
            raise ValueError(f"{message} | {fix}")
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=f"{path}:{line}", fix=fix) from error
    return size


def sized(spec: Module, counts: tuple[int, ...]) -> Size:
    """In the unit of what a module reads. Raises ValueError."""
    if len(counts) == 1 and UNITS[spec.reads] == 1:
        return counts[0]
    if spec.reads == "tokens":
        raise ValueError("a text is one sequence, not several | write one number, or several items")
    said = counts if len(counts) > 1 else counts[0]
    return ItemSize(frames=said) if spec.reads == "frames" else ItemSize(patches=said)


def numbers(cell: str, where: str) -> tuple[int, ...]:
    """Rows, such as 3 or 3+4; none of an empty cell. Raises InputError."""
    parts = [part.strip() for part in cell.split("+")] if cell.strip() else []
    for part in parts:
        if not WHOLE.fullmatch(part) or int(part) < 0:
            fix = "a row, counted from 0; several as 3+4"
            raise InputError(f"`{part[:40]}` is no row", where=where, fix=fix)
    return tuple(dict.fromkeys(map(int, parts)))


def drawn(stream: Stream, name: str, model: Model, highest: int, seed: int) -> list[Item]:
    """Of a distribution, `each` items for every item up to `highest` of the module that reads them."""
    assert not isinstance(stream, StreamFile), "files are read"
    spec, targets = model.modules[name], model.targets(name)
    count, own = (highest + 1) * stream.each, seed ^ crc32(name.encode())  # of its own, whatever samples are drawn by
    if len(targets) > 1:
        message = f"`{name}` feeds {' and '.join(targets)}: what is drawn is for one reader"
        raise InputError(message, where=f"workload.streams.{name}", fix="give a file that says who reads what")
    if count > MAX_ROWS:
        message = f"{count} items would be drawn, at most {MAX_ROWS} are"
        raise InputError(
            message, where=f"workload.streams.{name}.each", fix="a smaller number, or an earlier first row"
        )
    sizes = (
        sample(stream.name, count, own)
        if isinstance(stream, StreamDistribution)
        else sample_mix(stream.parts, count, own)
    )
    unit = spec.merged * UNITS[spec.reads]
    whole = (sized(spec, (-(-size // unit) * unit,)) for size in sizes)
    return [Item(number, size, {targets[0]: (number // stream.each,)}) for number, size in enumerate(whole)]
