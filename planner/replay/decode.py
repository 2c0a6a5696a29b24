"""The bytes of a trace as typed events: only the fields that are needed, and no more memory than is stated.

A trace may be plain or gzipped, an object with `traceEvents` or the bare list. Whatever a profiler has written as a
number or as text (`ts`, `tid`, `correlation`, `stream`) is read as either; fields that are not named here are skipped.
"""

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from planner.errors import InputError
from planner.units import MIB, size

LARGEST = 384 * MIB  # of a trace once unpacked; replaying one takes up to about four times its size
CHUNK = 4 * MIB

Either = float | str | None  # as a profiler may write a number


def number(value: Either) -> float | None:
    """A number, however it is written."""
    try:
        found = float(value) if value is not None else None
    except ValueError:
        return None
    return found if found is None or abs(found) < 1e300 else None


def whole(value: Either, otherwise: int = -1) -> int:
    found = number(value)
    return otherwise if found is None else int(found)


class Args(msgspec.Struct, gc=False):
    """What is said about an event."""

    correlation: Either = None
    external: Either = msgspec.field(default=None, name="External id")
    stream: Either = None
    device: Either = None
    bytes: Either = None
    group: Either = msgspec.field(default=None, name="Process Group Name")
    elements: Either = msgspec.field(default=None, name="In msg nelems")
    dtype: Either = None
    on_stream: Either = msgspec.field(default=None, name="wait_on_stream")
    record: Either = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")


class Event(msgspec.Struct, gc=False):
    """One line of a Chrome trace."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Either = None
    tid: Either = None
    ts: Either = None
    dur: Either = None
    id: Either = None
    args: Args | None = None


class File(msgspec.Struct):
    """The whole file."""

    events: list[Event] | None = msgspec.field(default=None, name="traceEvents")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    cuda_runtime_version: Either = None
    cuda_driver_version: Either = None
    cupti_version: Either = None
    torch_version: Either = None
    schema: Either = msgspec.field(default=None, name="schemaVersion")


def decoded(path: Path) -> File:
    """The file at `path`. Raises InputError."""
    data = unpacked(path)
    try:
        if data[:64].lstrip()[:1] == b"[":
            return File(events=msgspec.json.decode(data, type=list[Event]))
        return msgspec.json.decode(data, type=File)
    except msgspec.ValidationError as error:
        raise InputError(f"this is no trace of a profiler: {error}", where=str(path), fix=FIX) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "the trace ends in the middle" if "truncated" in str(error) else f"this is not JSON: {error}"
        raise InputError(what, where=str(path), fix="record or copy it again") from error


FIX = "give what torch.profiler's export_chrome_trace or tensorboard_trace_handler wrote"


def unpacked(path: Path) -> bytearray:
    """The bytes of a file, unzipped, never more than LARGEST."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as source:
            data = read_up_to(source, LARGEST)
    except EOFError as error:
        raise InputError("the trace ends in the middle", where=str(path), fix="record or copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"cannot unzip it: {error}", where=str(path), fix="record or copy it again") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the file: {reason}", where=str(path), fix="check the path") from error
    if data is None:
        what = f"the trace is larger than {size(LARGEST)} once unpacked"
        raise InputError(what, where=str(path), fix="record fewer steps, or without stacks and shapes")
    if not data.strip():
        raise InputError("the file is empty", where=str(path), fix=FIX)
    return data


def read_up_to(source: Any, most: int) -> bytearray | None:
    """All that a file holds; None when it is more than `most`."""
    data = bytearray()
    while chunk := source.read(CHUNK):
        data += chunk
        if len(data) > most:
            return None
    return data
