"""The user's ledger of runs: one JSON line for each run made here, with its prediction."""

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
    """One run of a plan, measured and predicted; the fields are the keys of its line."""

    when: str  # ISO 8601 in UTC, so that text order is time order
    machine: str
    plan: str  # its name
    digest: str  # of its text: tells plans of one name apart
    steps: int  # that were trained
    predicted_seconds: float  # of a step, median
    spread: float  # half-width of the 80 % interval over predicted_seconds
    measured_seconds: float  # of a step, median
    predicted_peak_bytes: float | None = None  # of the fullest rank
    measured_peak_bytes: float | None = None  # None: not measured, as on the CPU
    kinds: tuple[Kind, ...] = ()  # of the mean step

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds."""
        return self.measured_seconds / self.predicted_seconds


class Unread(NamedTuple):
    """A line that is not a valid entry."""

    line: int  # 1-based
    why: str


def default_path() -> Path:
    """`$XDG_DATA_HOME/planner/ledger.jsonl`, by default below ~/.local/share."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "planner" / "ledger.jsonl"


def append(path: Path, entry: Entry) -> None:
    """Append an entry atomically: one write at the file's end, under a lock. Raises InputError.

    An unfinished last line is terminated first, so that it corrupts no other.
    """
    line = json.dumps({"format": FORMAT, **asdict(entry)}, allow_nan=False)
    with hold(path.with_suffix(".lock"), "another process is writing this ledger"):
        try:
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                write_line(handle, line.encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise InputError(f"cannot write: {error.strerror}", where=str(path), fix="free space there") from error


def write_line(handle: int, line: bytes) -> None:
    """Write a whole line or nothing. Raises OSError."""
    size = os.fstat(handle).st_size
    unfinished = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    whole = b"\n" * unfinished + line + b"\n"
    if os.write(handle, whole) != len(whole):
        os.ftruncate(handle, size)  # a full disk accepts a part: remove it
        raise OSError(28, "No space left on device")


def read(path: Path) -> tuple[list[Entry], list[Unread]]:
    """Every line, as an entry or with the reason why it is none; empty without the file. Raises InputError."""
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
        unread.append(Unread(len(lines) + 1, "the last line is incomplete: its writer was interrupted"))
    return entries, unread


def entry(data: Any) -> Entry:
    """The entry of a parsed line, every field checked; keys of later versions are ignored. Raises ValueError."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"it does not begin with `format: {FORMAT}`")
    kinds = data.get("kinds", [])
    if not isinstance(kinds, list):
        raise ValueError("`kinds` is not a list")
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
    """The seconds of one kind of work. Raises ValueError."""
    if not isinstance(data, dict):
        raise ValueError("a kind of work is not an object")
    return Kind(field(data, "name", text), field(data, "predicted", amount), field(data, "measured", amount))


def field(data: dict[str, Any], name: str, check: Callable[[Any], Any]) -> Any:
    """A required value that passes `check`. Raises ValueError with its name."""
    if name not in data:
        raise ValueError(f"`{name}` is missing")
    try:
        return check(data[name])
    except ValueError as error:
        raise ValueError(f"`{name}` {error}") from None


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text")
    return value


def amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError("is not a number from 0")
    return float(value)


def positive(value: Any) -> float:
    if amount(value) == 0:
        raise ValueError("is 0")
    return float(value)


def positive_or_none(value: Any) -> float | None:
    return None if value is None else positive(value)
