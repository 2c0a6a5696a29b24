"""Decodes the bytes of a trace into typed events, with only the fields that are needed and in bounded memory.

A trace may be plain or gzipped, an object with `traceEvents` or the bare list. Fields that profilers write as numbers
or as text (`ts`, `tid`, `correlation`, `stream`) are read as either; fields that are not named here are skipped. Events
are decoded in batches, which the caller may drop once it has taken what it needs. The other fields say which rank on
which device recorded the trace, with what software.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from planner.errors import InputError
from planner.files import RECORDED_TRACE, read_chunks
from planner.replay.recording.event_splitter import EventSplitter
from planner.units import MIB, byte_size

MOST_BESIDES = 16 * MIB  # of an event, and of all that is no event
NumberOrText = float | str | None  # profilers write numbers as either
NOTHING = msgspec.Raw(b"null")
BOM = b"\xef\xbb\xbf"
NOT_A_NUMBER = re.compile(rb"[:,\[]\s*-?(NaN|Infinity)\b")
RECORD_AGAIN_FIX = "record or copy it again"
EXPORT_FIX = "give what torch.profiler's export_chrome_trace or tensorboard_trace_handler wrote"
RANK = re.compile(r"rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
MOST_RANKS = 1_000_000


def parse_number(value: NumberOrText) -> float | None:
    """A number written as a number or as text; None where there is none, or it is not finite."""
    if type(value) is float and -1e300 < value < 1e300:
        return value
    try:
        found = float(value) if value is not None else None
    except ValueError:
        return None
    return found if found is None or abs(found) < 1e300 else None


def parse_int(value: NumberOrText, otherwise: int = -1) -> int:
    """A number, written as such or as text, as an integer; `otherwise` where there is none."""
    found = parse_number(value)
    return otherwise if found is None else int(found)


class EventArgs(msgspec.Struct, gc=False):
    """The `args` of an event; what it worked on is decoded by those who ask for it."""

    correlation: NumberOrText = None
    external: NumberOrText = msgspec.field(default=None, name="External id")
    stream: NumberOrText = None
    device: NumberOrText = None
    group: NumberOrText = msgspec.field(default=None, name="Process Group Name")
    on_stream: NumberOrText = msgspec.field(default=None, name="wait_on_stream")
    record: NumberOrText = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    elements: NumberOrText = msgspec.field(default=None, name="In msg nelems")
    dtype: Any = None
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    inputs: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")


NO_ARGS = EventArgs()


class TraceEvent(msgspec.Struct, gc=False):
    """One event of a Chrome trace."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: NumberOrText = None
    tid: NumberOrText = None
    ts: NumberOrText = None
    dur: NumberOrText = None
    id: NumberOrText = None
    args: EventArgs | None = None


class TraceFile(msgspec.Struct):
    """The fields of a trace file; `events` is decoded separately."""

    events: list[TraceEvent] | None = msgspec.field(default=None, name="traceEvents")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    cuda_runtime_version: NumberOrText = None
    cuda_driver_version: NumberOrText = None
    cupti_version: NumberOrText = None
    torch_version: NumberOrText = None
    host_name: NumberOrText = None
    schema: NumberOrText = msgspec.field(default=None, name="schemaVersion")


class EventDecoder:
    """Decodes one file: first its events, then its other fields, which are in `file` afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = TraceFile()
        self.cut, self.any_events = False, False  # whether the file ends in the middle; whether it had any event

    def chunks(self, elements: EventSplitter[TraceEvent]) -> Iterator[bytes]:
        """The bytes of the file, as far as they can be unpacked once there are events. Raises InputError."""
        try:
            yield from read_chunks(self.path, RECORDED_TRACE)
        except InputError as error:
            if not (isinstance(error.__cause__, EOFError) and elements.inside_events and self.any_events):
                raise

    def events(self) -> Iterator[list[TraceEvent]]:
        """The events in batches. Raises InputError."""
        elements = EventSplitter(msgspec.json.Decoder(list[TraceEvent]).decode)
        for chunk in self.chunks(elements):
            found = self.json(elements.feed, chunk)
            if len(elements.pending) + len(elements.rest) > MOST_BESIDES:
                raise self.wrong(f"an event, or what is no event, has more than {byte_size(MOST_BESIDES)}", EXPORT_FIX)
            self.any_events = self.any_events or bool(found)
            yield found
        yield self.json(lambda _: elements.finish(), elements.pending)
        rest = elements.rest.removeprefix(BOM)
        if elements.inside_events:
            if not self.any_events:
                raise self.wrong("the trace ends in the middle", RECORD_AGAIN_FIX)
            self.cut = True
            rest += b"]" if rest.lstrip()[:1] == b"[" else b"]}"
        if not rest.strip():
            raise self.wrong("the file is empty", EXPORT_FIX)
        if rest.lstrip()[:1] == b"[":
            self.json(msgspec.json.decode, rest)
            self.file = TraceFile(events=[])
        else:
            self.file = self.json(msgspec.json.Decoder(TraceFile).decode, rest)

    def wrong(self, what: str, fix: str) -> InputError:
        return InputError(what, where=str(self.path), fix=fix)

    def json(self, decode: Any, data: bytes) -> Any:
        """Decode bytes. Raises InputError."""
        try:
            return decode(data)
        except msgspec.ValidationError as error:
            raise self.wrong(f"this is not a profiler trace: {error}", EXPORT_FIX) from error
        except RecursionError as error:
            raise self.wrong("its JSON is nested too deeply", RECORD_AGAIN_FIX) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if "truncated" in str(error):
                raise self.wrong("the trace ends in the middle", RECORD_AGAIN_FIX) from error
            odd = NOT_A_NUMBER.search(data)
            what = (
                f"it holds {odd.group(1).decode()}, which JSON does not allow" if odd else f"this is not JSON: {error}"
            )
            raise self.wrong(what, RECORD_AGAIN_FIX) from error


class TraceMetadata:
    """Metadata of one file."""

    def __init__(self, source: str, decoded: EventDecoder) -> None:
        self.source, self.file, self.cut = source, decoded.file, decoded.cut
        file = self.file
        self.distributed: dict[str, Any] = file.distributed if isinstance(file.distributed, dict) else {}

    def distributed_int(self, key: str) -> int | None:
        """An integer of `distributedInfo`; None where there is none."""
        value = self.distributed.get(key)
        found = parse_number(value) if isinstance(value, (int, float, str)) else None
        return None if found is None else int(found)

    def rank(self) -> int | None:
        """The rank that the file states, else the one in its name."""
        named = RANK.search(Path(self.source).name)
        stated = self.distributed_int("rank")
        return stated if stated is not None and is_possible_rank(stated) else int(named.group(1)) if named else None

    def world_size(self) -> int | None:
        stated = self.distributed_int("world_size")
        return stated if stated is not None and 1 <= stated <= MOST_RANKS else None

    def notes(self) -> list[str]:
        """Notes where the stated rank is impossible, or the file is cut."""
        stated = self.distributed_int("rank")
        notes = ["the trace ends in the middle: what was written before is replayed"] if self.cut else []
        if stated is not None and not is_possible_rank(stated):
            notes.append(f"the trace says that its rank is {stated:.6g}: ignored")
        return notes

    def host(self) -> str:
        """The host that recorded the trace; "": not stated."""
        return str(self.file.host_name or "")

    def device(self) -> str:
        devices = self.file.devices
        first = devices[0] if isinstance(devices, list) and devices else {}
        return str(first.get("name", "")) if isinstance(first, dict) else ""

    def versions(self) -> dict[str, str]:
        """Versions of the software that recorded the trace, as far as they are stated."""
        file = self.file
        given = {
            "torch": file.torch_version,
            "cuda runtime": file.cuda_runtime_version,
            "cuda driver": file.cuda_driver_version,
            "cupti": file.cupti_version,
            "nccl": self.distributed.get("nccl_version"),
            "kineto schema": file.schema,
        }
        return {name: str(value).removesuffix(".0") for name, value in given.items() if value is not None}


def is_possible_rank(rank: int) -> bool:
    return 0 <= rank < MOST_RANKS
