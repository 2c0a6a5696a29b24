"""The user's ledger of runs: one JSON line for each run made here, with its prediction; and how a plan's runs drift.

A plan drifts whose last run took longer or less than predicted, or than its runs before.
"""

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from planner.errors import InputError
from planner.files import LEDGER, hold_lock, open_bytes
from planner.ledger.work_kinds import KindSeconds
from planner.specs.base import Amount, Count, Positive

FORMAT = "planner.run/1"
MOST_UNREAD = 1000  # lines


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run of a plan, measured and predicted; the fields are the keys of its line."""

    when: str  # ISO 8601 in UTC, so that text order is time order
    machine: str
    plan: str  # its name
    digest: str  # of its text: tells plans of one name apart
    steps: Count  # that were trained
    predicted_seconds: Positive  # of a step, median
    spread: Amount  # half-width of the 80 % interval over predicted_seconds
    measured_seconds: Positive  # of a step, median
    predicted_peak_bytes: Positive | None = None  # of the fullest rank
    measured_peak_bytes: Positive | None = None  # None: not measured, as on the CPU
    kinds: tuple[KindSeconds, ...] = ()  # of the mean step

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds."""
        return self.measured_seconds / self.predicted_seconds


class UnreadLine(NamedTuple):
    """A line that is not a valid entry."""

    line: int  # 1-based
    why: str


def default_path() -> Path:
    """`$XDG_DATA_HOME/planner/ledger.jsonl`, by default below ~/.local/share."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "planner" / "ledger.jsonl"


def append_entry(path: Path, entry: RunEntry) -> None:
    """Append an entry atomically: one write at the file's end, under a lock. Raises InputError.

    An unfinished last line is terminated first, so that it corrupts no other.
    """
    line = json.dumps({"format": FORMAT, **asdict(entry)}, allow_nan=False)
    with hold_lock(path.with_suffix(".lock"), "another process is writing this ledger"):
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


def read_entries(path: Path) -> tuple[list[RunEntry], list[UnreadLine]]:
    """Every line, as an entry or with the reason why it is none; empty without the file. Raises InputError."""
    entries: list[RunEntry] = []
    unread: list[UnreadLine] = []
    if not os.path.lexists(path):
        return entries, unread
    with open_bytes(path, LEDGER) as file:
        for number, line in enumerate(file, start=1):
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("the last line is incomplete: its writer was interrupted")
                entries.append(parse_entry(line))
            except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
                unread.append(UnreadLine(number, str(error)))
            if len(unread) > MOST_UNREAD:
                what = f"more than {MOST_UNREAD} lines are no runs"
                raise InputError(what, where=f"{path}:{number}", fix="this is no ledger: give another file")
    return entries, unread


def parse_entry(line: bytes) -> RunEntry:
    """The entry of a line, every field checked; keys of later versions are ignored. Raises ValueError."""
    try:
        data = msgspec.json.decode(line)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"it does not begin with `format: {FORMAT}`")
        return msgspec.convert(data, RunEntry)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class RunDrift:
    """The runs of one plan on one machine, by the ratio of measured to predicted seconds."""

    plan: str
    machine: str
    runs: tuple[RunEntry, ...]  # in order of time

    @property
    def last_run(self) -> RunEntry:
        """The latest run."""
        return self.runs[-1]

    @property
    def earlier_ratio(self) -> float | None:
        """Median ratio of the runs before the last; None without any."""
        return median(entry.ratio for entry in self.runs[:-1]) if len(self.runs) > 1 else None

    @property
    def missed(self) -> bool:
        """Whether the last run is outside the 80 % interval of its prediction."""
        return outside_interval(self.last_run.ratio, 1.0, self.last_run.spread)

    @property
    def verdict(self) -> str:
        """In words."""
        return "drifted" if self.drifted else "missed" if self.missed else "as predicted"

    @property
    def drifted(self) -> bool:
        """Whether the last run's ratio differs from those before by more than the predicted spread."""
        return self.earlier_ratio is not None and outside_interval(
            self.last_run.ratio, self.earlier_ratio, self.last_run.spread
        )


def outside_interval(ratio: float, center: float, spread: float) -> bool:
    """Whether a ratio is outside center·e^±spread."""
    return abs(math.log(ratio / center)) > spread


def drift_by_plan(entries: Iterable[RunEntry]) -> list[RunDrift]:
    """Drift of each plan name and machine, sorted. A plan that was solved again stays comparable by its ratio."""
    runs: dict[tuple[str, str], list[RunEntry]] = defaultdict(list)
    for entry in entries:
        runs[entry.plan, entry.machine].append(entry)
    return [
        RunDrift(plan, machine, tuple(sorted(found, key=lambda entry: entry.when)))
        for (plan, machine), found in sorted(runs.items())
    ]
