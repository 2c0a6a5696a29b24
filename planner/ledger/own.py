"""The user's own ledger: one JSON line for each run made here, with what was predicted of it."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.files.lock import hold
from planner.ledger.beside import Kind

FORMAT = "planner.run/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a plan."""

    when: str  # ISO 8601, UTC: as text in order of time
    machine: str
    plan: str  # its name
    digest: str  # of its text: another one under the same name is another plan
    steps: int  # that were trained
    predicted_seconds: float  # of a step, median
    spread: float  # half-width of the 80 % interval over predicted_seconds
    measured_seconds: float  # of a step, median
    predicted_peak_bytes: float | None = None  # of the fullest rank
    measured_peak_bytes: float | None = None  # None: not counted, as on the CPU
    kinds: tuple[Kind, ...] = ()  # of the mean step

    @property
    def ratio(self) -> float:
        return self.measured_seconds / self.predicted_seconds


class Unread(NamedTuple):
    """A line that is no entry."""

    line: int  # 1-based
    why: str


def default_path() -> Path:
    """`$XDG_DATA_HOME/planner/ledger.jsonl`, by default below ~/.local/share."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "planner" / "ledger.jsonl"


def append(path: Path, entry: Entry) -> None:
    """Add a line, whole, whoever else adds one: one write at the file's end, under a lock. Raises InputError.

    A line that somebody left unfinished is ended first, so that it spoils no other.
    """
    line = json.dumps({"format": FORMAT, **asdict(entry)}, allow_nan=False)
    with hold(path.with_suffix(".lock"), "somebody writes this ledger"):
        try:
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                write_line(handle, line.encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise InputError(f"cannot write: {error.strerror}", where=str(path), fix="free space there") from error


def write_line(handle: int, line: bytes) -> None:
    size = os.fstat(handle).st_size
    unfinished = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    whole = b"\n" * unfinished + line + b"\n"
    if os.write(handle, whole) != len(whole):
        os.ftruncate(handle, size)  # a full disk takes a part: leave none of it
        raise OSError(28, "No space left on device")


def read(path: Path) -> tuple[list[Entry], list[Unread]]:
    """Every line, as an entry or with the reason that it is none. A ledger that is not there yet is empty."""
    try:
        *lines, unfinished = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=str(path), fix="check the path") from error
    entries, unread = [], []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(entry(json.loads(line)))
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
            unread.append(Unread(number, str(error)))
    if unfinished:
        unread.append(Unread(len(lines) + 1, "the last line has no end: its writer was cut off"))
    return entries, unread


def entry(data: Any) -> Entry:
    """What a line says, every field of its kind; keys that a later version added are left alone. Raises ValueError."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"it does not begin with `format: {FORMAT}`")
    kinds = data.get("kinds", [])
    if not isinstance(kinds, list):
        raise ValueError("`kinds` is no list")
    return Entry(
        when=field(data, "when", text),
        machine=field(data, "machine", text),
        plan=field(data, "plan", text),
        digest=field(data, "digest", text),
        steps=int(field(data, "steps", positive)),
        predicted_seconds=field(data, "predicted_seconds", positive),
        spread=field(data, "spread", amount),
        measured_seconds=field(data, "measured_seconds", positive),
        predicted_peak_bytes=field(data, "predicted_peak_bytes", positive_or_none),
        measured_peak_bytes=field(data, "measured_peak_bytes", positive_or_none),
        kinds=tuple(kind(one) for one in kinds),
    )


def kind(data: Any) -> Kind:
    if not isinstance(data, dict):
        raise ValueError("a kind of work is no object")
    return Kind(field(data, "name", text), field(data, "predicted", amount), field(data, "measured", amount))


def field(data: dict[str, Any], name: str, check: Callable[[Any], Any]) -> Any:
    if name not in data:
        raise ValueError(f"`{name}` is missing")
    try:
        return check(data[name])
    except ValueError as error:
        raise ValueError(f"`{name}` {error}") from None


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text")
    return value


def amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError("is no amount")
    return float(value)


def positive(value: Any) -> float:
    if amount(value) == 0:
        raise ValueError("is 0")
    return float(value)


def positive_or_none(value: Any) -> float | None:
    return None if value is None else positive(value)
