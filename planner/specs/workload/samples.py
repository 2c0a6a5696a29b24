"""Samples of a workload: lengths, fixed or from a file, a folder of tokens, a distribution or a mix, batch by batch."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs.workload.distributions import draw_lengths, draw_mixture
from planner.specs.workload.items import Size
from planner.specs.workload.length_sources import (
    Distribution,
    FixedLength,
    LengthsFile,
    LogNormalMix,
    TokensFolder,
    Workload,
)
from planner.specs.workload.token_folder import open_offsets, sample_lengths

MAX_LENGTH = 10**9
MAX_SAMPLES = 2**24  # of the data: all samples up to the last one needed are drawn
MOST_NAMED = 200  # characters of a header that an error shows
INTEGER = re.compile(r"-?[0-9]{1,18}")


ReadersByItem = dict[int, tuple[int, ...]]  # item → items of the module that reads it


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Consecutive samples of the data: those that the plan assigns, and those that were too long for the job."""

    items: dict[int, int]  # sample → tokens, after rounding
    dropped: tuple[int, ...]
    streams: Mapping[str, dict[int, Size]] = field(default_factory=dict)  # other module → item → size
    # Module → module that reads it → readers by item
    feeds: Mapping[str, dict[str, ReadersByItem]] = field(default_factory=dict)
    # Other module → items without a reader in the batch
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tasks: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # task → its samples, items of each of its modules


def read_batches(workload: Workload, count: int, first_row: int, seed: int, base: Path) -> list[SampleBatch]:
    """Read `count` consecutive batches from sample `first_row` on. `base`: the folder of relative paths.

    Raises InputError when there are too few samples, or a length is invalid.
    """
    lengths = read_samples(workload, end_of_batches(workload, count, first_row), seed, base)
    return make_batches(workload, lengths, count, first_row)


def end_of_batches(workload: Workload, count: int, first_row: int) -> int:
    """The sample behind the last of `count` batches. Raises InputError where it is too far to be drawn or read."""
    end = first_row + count * workload.batch_rows
    if end > MAX_SAMPLES:
        what = f"{count} batches of {workload.batch_rows} samples end at sample {end}, beyond sample {MAX_SAMPLES}"
        raise InputError(what, where="workload", fix="ask for fewer batches, or an earlier first sample")
    return end


def make_batches(workload: Workload, lengths: list[int], count: int, first_row: int) -> list[SampleBatch]:
    """Return `count` consecutive batches of samples with these lengths. Raises InputError where they are too few."""
    starts = batch_starts(workload, count, first_row, len(lengths))
    return [make_batch(workload, lengths, start) for start in starts]


def batch_starts(workload: Workload, count: int, first_row: int, available: int | None) -> range:
    """Return the first samples of `count` consecutive batches. Raises InputError where the data has too few."""
    end = first_row + count * workload.batch_rows
    if available is not None and available < end:
        raise InputError(
            f"{count} batches of {workload.batch_rows} samples end at sample {end}, the data has {available}",
            where="workload",
            fix="ask for fewer batches, or give more samples",
        )
    return range(first_row, end, workload.batch_rows)


def make_batch(
    workload: Workload, lengths: Sequence[int] | Mapping[int, int], start: int, too_large: Collection[int] = ()
) -> SampleBatch:
    """Return the batch from sample `start` on, with lengths rounded up; samples that are too long, or among
    `too_large`, are dropped.
    """
    items: dict[int, int] = {}
    dropped = []
    for index in range(start, start + workload.batch_rows):
        if index in too_large or (workload.max_tokens and lengths[index] > workload.max_tokens):
            dropped.append(index)
        else:
            items[index] = -(-lengths[index] // workload.round_to) * workload.round_to
    if not items and not too_large:
        raise InputError(
            f"every sample of the batch from sample {start} on is longer than {workload.max_tokens} tokens",
            where="workload.max_tokens",
            fix="raise max_tokens",
        )
    if not items:
        message = f"every sample of the batch from sample {start} on is larger than max_tokens or max_inputs allow"
        raise InputError(message, where="workload.max_inputs", fix="raise them")
    return SampleBatch(items, tuple(dropped))


def read_samples(workload: Workload, count: int, seed: int, base: Path) -> list[int]:
    """Return the lengths of the first `count` samples or more; fewer where the data ends."""
    lengths = workload.lengths
    if isinstance(lengths, int):
        return [lengths] * count
    if isinstance(lengths, FixedLength):
        return [lengths.tokens] * count
    if isinstance(lengths, LengthsFile):
        return read_lengths(base / lengths.path, lengths.column)
    if isinstance(lengths, TokensFolder):
        folder = base / lengths.path
        return sample_lengths(open_offsets(folder), folder, 0, count)
    if isinstance(lengths, Distribution):
        return draw_lengths(lengths.name, count, seed)
    if isinstance(lengths, LogNormalMix):
        return draw_mixture(lengths.parts, count, seed)
    raise TypeError("samples with images and sound are read by sample_batches")


def read_lengths(path: Path, column: str) -> list[int]:
    """Read one length a line, or a column of a CSV; unpacked where it is gzipped. Raises InputError."""
    rows = files.read_csv(path, files.LENGTHS)
    first, header = next(rows, (0, None))
    if header is None:
        raise InputError("the file of lengths is empty", where=str(path), fix="give one length a line")
    if len(header) == 1 and INTEGER.fullmatch(header[0].strip()):
        cells = ((line, ",".join(row)) for line, row in chain([(first, header)], rows))
        return [parse_length(cell, path, line) for line, cell in cells if cell.strip()]
    if column not in header:
        fix = f"set column to one of {', '.join(header)[:MOST_NAMED]}"
        raise InputError(f"the file has no column `{column}`", where=f"{path}:1", fix=fix)
    index = header.index(column)
    return [parse_length(row[index] if index < len(row) else "", path, line) for line, row in rows if row]


def parse_length(cell: str, path: Path, line: int) -> int:
    """Parse a positive number of tokens. Raises InputError."""
    if cell.isascii() and cell.isdigit() and len(cell) < 10 and (tokens := int(cell)):  # nearly all of millions
        return tokens
    text = cell.strip()
    if not INTEGER.fullmatch(text) or not 0 < int(text) <= MAX_LENGTH:
        fix = "a whole number of tokens, at least 1"
        raise InputError(f"`{text[:40]}` is no length", where=f"{path}:{line}", fix=fix)
    return int(text)
