"""Items of one stream: read from a CSV, or drawn from a distribution."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from planner import files
from planner.errors import InputError
from planner.specs.layers import Module
from planner.specs.model import Model
from planner.specs.workload.distributions import draw_lengths, draw_mixture
from planner.specs.workload.items import UNITS_PER_TOKEN, ItemSize, Size, size_faults
from planner.specs.workload.length_sources import (
    LengthsFile,
    StreamDistribution,
    StreamFile,
    StreamMix,
    TokensFolder,
    Workload,
)
from planner.specs.workload.samples import INTEGER, MAX_SAMPLES, MOST_NAMED, parse_length, read_lengths
from planner.specs.workload.token_folder import open_offsets

DRAWN_AT_ONCE = 16  # batches whose sizes are drawn together


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One item of a stream, with its readers."""

    number: int  # in its stream, from 0
    size: Size
    readers: Mapping[str, tuple[int, ...]]  # module that reads it → items of that module
    where: str = ""  # its line in the file, for errors


def sample_count(workload: Workload, base: Path) -> int | None:
    """Return the number of samples in the data; None: they are drawn, and unlimited."""
    lengths = workload.lengths
    if isinstance(lengths, LengthsFile):
        return len(read_lengths(base / lengths.path, lengths.column))
    return len(open_offsets(base / lengths.path)) - 1 if isinstance(lengths, TokensFolder) else None


def read_stream_items(stream: StreamFile, name: str, model: Model, base: Path) -> Iterator[StreamItem]:
    """Yield the items of a file, one for each line. Raises InputError."""
    path, spec = base / stream.path, model.modules[name]
    readers = reader_columns(stream, name, model.targets(name))
    rows = files.read_csv(path, files.SAMPLES)
    _, header = next(rows, (0, []))
    for column in (stream.column, *readers.values()):
        if column not in header:
            shown = ", ".join(header)[:MOST_NAMED]
            fix = f"columns are {shown}; `column` names that of sizes, `reads` that of readers"
            raise InputError(f"the file has no column `{column}`", where=f"{path}:1", fix=fix)
    for number, (line, row) in enumerate((line, row) for line, row in rows if row):
        cells = dict(zip(header, row, strict=False))
        where = f"{path}:{line}"
        size = parse_size(cells.get(stream.column, ""), name, spec, path, line)
        read_by = {target: parse_readers(cells.get(column, ""), where) for target, column in readers.items()}
        if not any(read_by.values()):
            message = f"item {number} of `{name}` has no reader"
            raise InputError(message, where=where, fix="name the item that reads it, or remove the line")
        yield StreamItem(number, size, read_by, where)


def reader_columns(stream: StreamFile, name: str, targets: tuple[str, ...]) -> dict[str, str]:
    """Return module that reads → column with its reading items. Raises InputError."""
    by_module = dict.fromkeys(targets, stream.reads) if isinstance(stream.reads, str) else stream.reads
    if set(by_module) != set(targets) or (len(targets) > 1 and isinstance(stream.reads, str)):
        message = f"`{name}` feeds {' and '.join(targets)}, and `reads` does not name each of them"
        fix = f"reads: {{{', '.join(f'{target}: column' for target in targets)}}}"
        raise InputError(message, where=f"workload.streams.{name}.reads", fix=fix)
    return dict(by_module)


def parse_size(cell: str, name: str, spec: Module, path: Path, line: int) -> Size:
    """Parse the size of an item, such as 4096, or 1024+256 of two parts. Raises InputError."""
    counts = tuple(parse_length(part, path, line) for part in cell.split("+"))
    try:
        size = make_size(spec, counts)
        for message, fix in size_faults(spec, name, size):
            raise ValueError(f"{message} | {fix}")
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=f"{path}:{line}", fix=fix) from error
    return size


def make_size(spec: Module, counts: tuple[int, ...]) -> Size:
    """Return the size of an item whose parts have these counts in the module's input unit. Raises ValueError."""
    if len(counts) == 1 and UNITS_PER_TOKEN[spec.input_unit] == 1:
        return counts[0]
    if spec.input_unit == "tokens":
        raise ValueError("a text is one sequence, not several | write one number, or several items")
    count = counts if len(counts) > 1 else counts[0]
    return ItemSize(frames=count) if spec.input_unit == "frames" else ItemSize(patches=count)


def whole_size(spec: Module, count: int) -> Size:
    """Return the size of an item of one part with so many inputs, or as many more as make its last output whole."""
    unit = spec.tokens_per_output * UNITS_PER_TOKEN[spec.input_unit]
    return make_size(spec, (-(-count // unit) * unit,))


def draw_sizes(stream: StreamDistribution | StreamMix, count: int, seed: int) -> list[int]:
    """Return sizes of so many items, of which the first do not depend on how many are drawn."""
    if isinstance(stream, StreamDistribution):
        return draw_lengths(stream.name, count, seed)
    return draw_mixture(stream.parts, count, seed)


def parse_readers(cell: str, where: str) -> tuple[int, ...]:
    """Parse the reading items, such as 3 or 3+4; none in an empty cell. Raises InputError."""
    parts = [part.strip() for part in cell.split("+")] if cell.strip() else []
    for part in parts:
        if not INTEGER.fullmatch(part) or int(part) < 0:
            fix = "the number of an item, counted from 0; several as 3+4"
            raise InputError(f"`{part[:40]}` is no number of an item", where=where, fix=fix)
    return tuple(dict.fromkeys(map(int, parts)))


class DrawnStream:
    """A stream whose items are drawn, `each` for every item of the module that reads them.

    Of the sizes, which the seed fixes from the first on, those of a batch and of some behind it are kept.
    """

    def __init__(self, stream: StreamDistribution | StreamMix, name: str, model: Model, seed: int) -> None:
        self.stream, self.name, self.model = stream, name, model
        self.seed = seed ^ crc32(name.encode())  # a seed of its own, independent of the samples'
        self.first, self.sizes = 0, list[int]()

    def items(self, readers: Sequence[int]) -> list[StreamItem]:
        """Return the items of these readers, which rise. Raises InputError."""
        spec, targets, each = self.model.modules[self.name], self.model.targets(self.name), self.stream.each
        if len(targets) > 1:
            message = f"`{self.name}` feeds {' and '.join(targets)}: drawn items have one reader"
            fix = "give a file with the readers of each item"
            raise InputError(message, where=f"workload.streams.{self.name}", fix=fix)
        if readers:
            self.draw(readers[0] * each, (readers[-1] + 1) * each)
        return [
            StreamItem(number, whole_size(spec, self.sizes[number - self.first]), {targets[0]: (reader,)})
            for reader in readers
            for number in range(reader * each, (reader + 1) * each)
        ]

    def draw(self, first: int, end: int) -> None:
        """Draw the sizes of these items, unless they are there. Raises InputError."""
        if self.first <= first and end <= self.first + len(self.sizes):
            return
        if end > MAX_SAMPLES:
            message = f"{end} items would be drawn, at most {MAX_SAMPLES} are"
            fix = "a smaller number, or an earlier first sample"
            raise InputError(message, where=f"workload.streams.{self.name}.each", fix=fix)
        count = min(first + DRAWN_AT_ONCE * (end - first), MAX_SAMPLES)
        self.first, self.sizes = first, draw_sizes(self.stream, count, self.seed)[first:]
