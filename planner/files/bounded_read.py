"""The bytes of a file that anyone may have made: a regular file, unpacked where it is gzipped, no larger than its kind.

Nothing else is waited for or read to its end: a pipe without a writer, a device, a small file that unpacks to a large
one. Whoever reads a file that a person or another file names opens it here.
"""

import csv
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EAGAIN
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from planner.errors import InputError
from planner.units import MIB, byte_size

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 4 * MIB  # read at a time
KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
READ_FIX = "check the path"


class FileKind(NamedTuple):
    """A kind of file: how many bytes and records of one are read at most."""

    name: str
    most: int  # bytes, once unpacked
    gzipped: bool = True  # whether it may be
    records: int = 10**6  # of a table: in memory its cells are many times the size of their text
    smaller: str = "give a smaller one"  # the fix for one that is too large


TEXT = FileKind("text file", 32 * MIB, gzipped=False)
TABLE = FileKind("table", 64 * MIB)
RECORDS = FileKind("file of published records", 32 * MIB, records=10**4)  # each is a case to predict
LAUNCH = FileKind("file that launches training", 1 * MIB, gzipped=False)
LENGTHS = FileKind("file of lengths", 64 * MIB, records=10**7)
SAMPLES = FileKind("file of samples or items", 64 * MIB, records=5 * 10**5)
SCHEDULE = FileKind("schedule", 4 * MIB, gzipped=False)
LEDGER = FileKind("ledger", 64 * MIB, gzipped=False, smaller="move it away: the next run begins another")
PLANNED_TRACE = FileKind("trace of planner", 128 * MIB, smaller="write it of fewer ranks, by --trace-ranks, or steps")
RECORDED_TRACE = FileKind(
    "trace of torch.profiler",
    384 * MIB,  # replaying one of 301 MB took 4.6 times that memory, measured
    smaller="record fewer steps, or without stacks and shapes",
)
WHOLE = FileKind("file", 2**63, gzipped=False)  # of which no more than a block is in memory


class BoundedReader(io.RawIOBase):
    """The bytes of an open file, up to what its kind may have; every method that reads raises InputError."""

    def __init__(self, source: Any, path: str | Path, kind: FileKind) -> None:
        self.source, self.path, self.kind, self.left = source, path, kind, kind.most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count: int | None = self.source.readinto(buffer)
            if count is None:
                raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            what = f"the gzipped file cannot be unpacked: {error}"
            raise InputError(what, where=str(self.path), fix="make or fetch it again") from error
        except OSError as error:
            raise unreadable(self.path, error) from error
        self.left -= count
        if self.left < 0:
            what = f"a {self.kind.name} of more than {byte_size(self.kind.most)} is not read"
            raise InputError(what, where=str(self.path), fix=self.kind.smaller)
        return count


@contextmanager
def open_bytes(path: str | Path, kind: FileKind = WHOLE) -> Iterator[BinaryIO]:
    """A regular file, opened to be read. Raises InputError, as does whatever reads from it."""
    require_regular(path)
    try:
        raw = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    with raw:
        require_regular(raw.fileno(), path)  # if it was exchanged meanwhile, nothing has waited
        packed = kind.gzipped and BoundedReader(raw, path, kind).read(len(GZIP_MAGIC)) == GZIP_MAGIC
        raw.seek(0)
        yield io.BufferedReader(BoundedReader(gzip.GzipFile(fileobj=raw) if packed else raw, path, kind))


def require_regular(file: str | Path | int, path: str | Path = "") -> None:
    """Raises InputError unless this path, or open file, is a regular file: opening a device alone may do something."""
    path = path or str(file)
    try:
        mode = os.stat(file).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(mode):
        what = f"cannot read the file: this is {KINDS.get(stat.S_IFMT(mode), 'something else')}"
        raise InputError(what, where=str(path), fix="give a regular file")


def unreadable(path: str | Path, error: Exception) -> InputError:
    """The error for a path that the system does not read."""
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"cannot read the file: {reason}", where=str(path), fix=READ_FIX)


def read_chunks(path: str | Path, kind: FileKind = WHOLE) -> Iterator[bytes]:
    """The bytes of a file in chunks. Raises InputError."""
    with open_bytes(path, kind) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def read_bytes(path: str | Path, kind: FileKind) -> bytearray:
    """All bytes of a file. Raises InputError."""
    whole = bytearray()
    for chunk in read_chunks(path, kind):
        whole += chunk
    return whole


def read_head(path: str | Path, count: int) -> bytes:
    """The first bytes of a file, unpacked. Raises InputError."""
    with open_bytes(path, WHOLE._replace(gzipped=True)) as file:
        return file.read(count)


def read_text(path: str | Path, kind: FileKind = TEXT) -> str:
    """The text of a file. Raises InputError, never OSError or UnicodeDecodeError."""
    raw = read_bytes(path, kind)
    try:
        return raw.decode("utf-8-sig")  # a byte-order mark is no part of it
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        what, fix = "this is not a text file: it is not UTF-8", "give a text file in UTF-8"
        raise InputError(what, where=f"{path}:{line}", fix=fix) from error


def too_many_records(kind: FileKind, path: str | Path, line: int) -> InputError:
    """The error for a file that goes on at a line where its kind may not."""
    what = f"a {kind.name} of more than {kind.records:,} records is not read"
    return InputError(what, where=f"{path}:{line}", fix=kind.smaller)


def read_csv(path: str | Path, kind: FileKind = TABLE, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV, each with the number of its last line; a blank line has no cells. Raises InputError.

    `strict`: an open quote is refused, which otherwise takes all that follows for its cell.
    """
    with open_bytes(path, kind) as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), strict=strict)
        try:
            for number, cells in enumerate(reader):
                if number > kind.records:
                    raise too_many_records(kind, path, reader.line_num)
                yield reader.line_num, cells
        except csv.Error as error:
            where = f"{path}:{reader.line_num}"
            raise InputError(f"this is not CSV: {error}", where=where, fix="correct the quotes there") from error
        except UnicodeDecodeError:
            read_text(path, kind)  # says on which line


def read_records(path: str | Path, example: str, aliases: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The records of a CSV with a header, by the names of its columns, some of which stand for others; and the place of
    each. `example`: of a header. Raises InputError.
    """
    header: list[str] = []
    for line, cells in read_csv(path, strict=True):
        where = f"{path}:{line}"
        if not any(cells):
            continue
        if not header:
            header = [aliases.get(cell.strip(), cell.strip()) for cell in cells]
            twice = [cell.strip() for cell, name in zip(cells, header, strict=True) if header.count(name) > 1]
            if twice:
                raise InputError(f"columns {' and '.join(twice)} say the same", where=where, fix="leave one of them")
            continue
        if len(cells) != len(header):
            message = f"it has {len(cells)} cells, and the header has {len(header)}"
            raise InputError(message, where=where, fix="give each column a cell")
        yield where, dict(zip(header, map(str.strip, cells), strict=True))
    if not header:
        raise InputError("the table is empty", where=f"{path}:1", fix=f"a header with {example}")
