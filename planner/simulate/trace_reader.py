"""Reads trace files that `simulate --trace` and `run --trace` wrote back into timelines, strictly.

Times are restored to the nanosecond. Slices of a task that start and end together on several ranks become one event
again, and ranks that were not drawn get the events of the ranks that represent them. A field that is missing or has
another type than planner writes is an error that names the record and the fix; msgspec does not serve here, as a trace
has many fields of other programs.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from planner.errors import InputError
from planner.files import PLANNED_TRACE, read_json
from planner.plan.task import PHASE_STREAMS, Phase
from planner.simulate.timeline import TaskEvent, Timeline
from planner.simulate.trace_records import TimeLabel, TraceRecord
from planner.simulate.trace_writer import FORMAT
from planner.specs.base import MAX_RANKS, Ranks, Source
from planner.units import MS, US

REWRITE_FIX = "write it again with `planner simulate PLAN --trace FILE` or `planner run PLAN --trace FILE`"
FOREIGN_FIX = "give a trace that planner wrote; `planner replay` reads those of PyTorch's profiler"


def read_json_object(path: Path) -> TraceRecord:
    """The JSON object in a file, plain or gzipped. Raises InputError."""
    trace = read_json(path, FOREIGN_FIX, PLANNED_TRACE)
    if not isinstance(trace, dict):
        raise InputError("this is not a trace that planner wrote", where=str(path), fix=FOREIGN_FIX)
    return trace


class JsonObject:
    """A JSON object of a file, read field by field; every method that reads one raises InputError."""

    __slots__ = ("fields", "file", "route")

    def __init__(self, fields: Any, file: str, route: str) -> None:
        self.file, self.route = file, route
        if not isinstance(fields, dict):
            raise InputError("a JSON object is expected here", where=f"{file} ({route})", fix=REWRITE_FIX)
        self.fields: TraceRecord = fields

    def location(self, key: str) -> str:
        """File and path of a field, for errors."""
        return f"{self.file} ({f'{self.route}.{key}' if self.route else key})"

    def error_at(self, key: str, what: str) -> InputError:
        return InputError(what, where=self.location(key), fix=REWRITE_FIX)

    def field(self, key: str, kind: Any, default: Any = None) -> Any:
        """The field `key`, of exactly this type; without a default it is required."""
        if key not in self.fields and default is not None:
            return default
        if key not in self.fields:
            raise self.error_at(key, f"`{key}` is missing")
        found = self.fields[key]
        if not isinstance(found, kind) or isinstance(found, bool):
            raise self.error_at(key, f"`{key}` has another type than planner writes")
        return found

    def number(self, key: str, default: float | None = None) -> float:
        """The field as a finite number that is not negative."""
        found = self.field(key, (int, float), default)
        if not 0 <= found < math.inf:
            raise self.error_at(key, f"`{key}` is {found}: times begin at 0")
        return float(found)

    def integer(self, key: str, least: int, most: int) -> int:
        found: int = self.field(key, int)
        if not least <= found <= most:
            raise self.error_at(key, f"`{key}` is {found}, not between {least} and {most}")
        return found

    def choice(self, key: str, words: tuple[str, ...], default: str | None = None) -> Any:
        found = self.field(key, str, default)
        if found not in words:
            raise self.error_at(key, f"`{key}` is {found}, not one of {', '.join(words)}")
        return found

    def child(self, key: str) -> "JsonObject":
        return JsonObject(self.field(key, dict), self.file, f"{self.route}.{key}".strip("."))

    def children(self, key: str) -> Iterator["JsonObject"]:
        for number, fields in enumerate(self.field(key, list)):
            yield JsonObject(fields, self.file, f"{self.route}.{key}[{number}]".strip("."))


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a trace file."""

    timeline: Timeline
    label: TimeLabel
    groups: dict[str, str]  # task id → group
    tokens: dict[str, int]  # task id → tokens it works on
    plan: str  # name of the plan
    step: int  # number of the step in the plan
    run_step: int | None  # number of the step in the run; None: simulated


def median_step(steps: tuple[RecordedStep, ...]) -> RecordedStep:
    """The step of median length, which represents a run; of two in the middle the shorter one."""
    return sorted(steps, key=lambda step: step.timeline.step_seconds)[(len(steps) - 1) // 2]


def read_steps(path: Path) -> tuple[RecordedStep, ...]:
    """Every step of a trace file. Raises InputError."""
    trace = read_json_object(path)
    top = JsonObject(trace, str(path), "")
    if not isinstance(trace.get("otherData"), dict) or "planner" not in trace["otherData"]:
        raise InputError("this is not a trace that planner wrote", where=f"{path} (otherData)", fix=FOREIGN_FIX)
    head = top.child("otherData")
    if head.field("format", str) != FORMAT:
        raise head.error_at("format", f"this version reads {FORMAT}, the trace is {head.field('format', str)}")
    label = head.choice("planner", ("measured", "simulated", "both"))
    if label == "both":
        fix = "give the file that `planner run --trace` wrote"
        raise InputError("the trace holds a measured and a simulated side", where=head.location("planner"), fix=fix)
    ranks = head.integer("ranks", 1, MAX_RANKS)
    represented = drawn_for(head, ranks)
    steps = [StepReader(entry) for entry in head.children("steps")]
    if not steps:
        raise head.error_at("steps", "the trace holds no step")
    for record in top.children("traceEvents"):
        if record.field("ph", str) == "X" and record.field("cat", str) != "step":
            add_slice(record, steps, represented, ranks)
    return tuple(step.recorded(label, head.field("plan", str), ranks) for step in steps)


def drawn_for(head: JsonObject, ranks: int) -> Mapping[int, Ranks]:
    """For each drawn rank that represents others, all the ranks that it represents. Raises InputError."""
    found: dict[int, Ranks] = {}
    for key, value in head.field("stands_for", dict, {}).items():
        try:
            all_of_them = Ranks.from_file(value)
            if int(key) not in all_of_them or all_of_them[-1] >= ranks:
                raise ValueError
        except (ValueError, IndexError) as error:
            raise head.error_at(f"stands_for.{key}", f"`{value}` is no set of ranks with {key} among them") from error
        found[int(key)] = Ranks(all_of_them)
    return found


EventKey = tuple[str, float, float, float, str, float, str]  # all fields of an event but its ranks


class StepReader:
    """Collects the slices of one step."""

    def __init__(self, entry: JsonObject) -> None:
        self.number = entry.integer("plan_step", 0, 10**9)
        self.run_step = None if entry.fields.get("run_step") is None else entry.integer("run_step", 0, 10**9)
        self.start = entry.number("start_us")  # microseconds, as in the slices
        self.seconds = entry.number("seconds")
        self.alike: dict[str, str] = entry.field("groups_alike", dict, {})
        if not all(isinstance(group, str) for group in self.alike.values()):
            raise entry.error_at("groups_alike", "`groups_alike` has another type than planner writes")
        self.groups: dict[str, str] = {}
        self.tokens: dict[str, int] = {}
        self.kinds: dict[str, tuple[Phase, str]] = {}
        self.events_by_key: dict[EventKey, list[set[int]]] = {}

    def add(self, key: EventKey, ranks: tuple[int, ...]) -> None:
        """Add a slice to the event it is part of; a second one on the same rank is another event."""
        events = self.events_by_key.setdefault(key, [])
        for event in events:
            if event.isdisjoint(ranks):
                event.update(ranks)
                return
        events.append({*ranks})

    def recorded(self, label: TimeLabel, plan: str, ranks: int) -> RecordedStep:
        events = tuple(
            TaskEvent(
                key[0], *self.kinds[key[0]], Ranks(sorted(of)), key[1], key[2], key[3], as_source(key[4]), *key[5:]
            )
            for key, events in self.events_by_key.items()
            for of in events
        )
        timeline = Timeline(events, self.seconds, ranks, representative_group=self.alike)
        return RecordedStep(timeline, label, self.groups, self.tokens, plan, self.number, self.run_step)


def add_slice(record: JsonObject, steps: list[StepReader], represented: Mapping[int, Ranks], ranks: int) -> None:
    """Add one slice to the step it belongs to. Raises InputError."""
    args = record.child("args")
    at = args.field("step", int, 0)
    if not 0 <= at < len(steps):
        raise args.error_at("step", f"`step` is {at}, the trace has {len(steps)}")
    step, id = steps[at], args.field("task", str)
    phase = record.choice("cat", tuple(PHASE_STREAMS))
    step.kinds[id] = (phase, args.field("module", str))
    step.groups[id] = args.field("group", str)
    step.tokens[id] = args.integer("tokens", 0, 10**15)
    rank = record.integer("pid", 0, ranks - 1)
    start, length = round(record.number("ts") - step.start, 3), record.number("dur")
    if start < 0:
        raise record.error_at("ts", f"{id} starts before its step")
    key = (
        id,
        to_seconds(start),
        to_seconds(start + length),
        round(args.number("comm_ms", 0.0) * MS, 9),
        args.choice("source", get_args(Source)),
        args.number("spread", 0.0),
        args.field("cause", str, ""),
    )
    step.add(key, represented.get(rank, Ranks((rank,))))


def to_seconds(microseconds: float) -> float:
    """Microseconds in seconds, to the nanosecond."""
    return round(microseconds * US, 9)


def as_source(word: str) -> Source:
    return word  # type: ignore[return-value]  # `one_of` has checked it
