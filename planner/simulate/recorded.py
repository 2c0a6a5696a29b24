"""Reads trace files that `simulate --trace` and `run --trace` wrote back into timelines, strictly.

Times are restored to the nanosecond. Slices of a task that start and end together on several ranks become one event
again, and ranks that were not drawn get the events of the ranks that represent them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from planner.errors import InputError
from planner.plan.task import STREAMS, Phase
from planner.simulate.slices import Label
from planner.simulate.strict import FOREIGN, Place, json_object
from planner.simulate.timeline import Event, Timeline
from planner.simulate.trace import FORMAT
from planner.specs.base import MAX_RANKS, Ranks, Source
from planner.units import MS, US


@dataclass(frozen=True, slots=True)
class Recorded:
    """One step of a trace file."""

    timeline: Timeline
    label: Label
    groups: dict[str, str]  # task id → group
    tokens: dict[str, int]  # task id → tokens it works on
    plan: str  # name of the plan
    step: int  # number of the step in the plan
    run_step: int | None  # number of the step in the run; None: simulated


def read_trace(path: Path) -> Recorded:
    """The step of median length of a trace file. Raises InputError."""
    return typical(read_steps(path))


def typical(steps: tuple[Recorded, ...]) -> Recorded:
    """The step of median length, which represents a run; of two in the middle the shorter one."""
    return sorted(steps, key=lambda step: step.timeline.step_seconds)[(len(steps) - 1) // 2]


def read_steps(path: Path) -> tuple[Recorded, ...]:
    """Every step of a trace file. Raises InputError."""
    trace = json_object(path)
    top = Place(trace, str(path), "")
    if not isinstance(trace.get("otherData"), dict) or "planner" not in trace["otherData"]:
        raise InputError("this is not a trace that planner wrote", where=f"{path} (otherData)", fix=FOREIGN)
    head = top.inside("otherData")
    if head.value("format", str) != FORMAT:
        raise head.wrong("format", f"this version reads {FORMAT}, the trace is {head.value('format', str)}")
    label = head.one_of("planner", ("measured", "simulated", "both"))
    if label == "both":
        fix = "give the file that `planner run --trace` wrote"
        raise InputError("the trace holds a measured and a simulated side", where=head.named("planner"), fix=fix)
    ranks = head.whole("ranks", 1, MAX_RANKS)
    represented = stands_for(head, ranks)
    steps = [Step(entry) for entry in head.each("steps")]
    if not steps:
        raise head.wrong("steps", "the trace holds no step")
    for record in top.each("traceEvents"):
        if record.value("ph", str) == "X" and record.value("cat", str) != "step":
            record_slice(record, steps, represented, ranks)
    return tuple(step.recorded(label, head.value("plan", str), ranks) for step in steps)


def stands_for(head: Place, ranks: int) -> Mapping[int, Ranks]:
    """For each drawn rank that represents others, all the ranks that it represents. Raises InputError."""
    found: dict[int, Ranks] = {}
    for key, value in head.value("stands_for", dict, {}).items():
        try:
            all_of_them = Ranks.from_file(value)
            if int(key) not in all_of_them or all_of_them[-1] >= ranks:
                raise ValueError
        except (ValueError, IndexError) as error:
            raise head.wrong(f"stands_for.{key}", f"`{value}` is no set of ranks with {key} among them") from error
        found[int(key)] = Ranks(all_of_them)
    return found


Key = tuple[str, float, float, float, str, float, str]  # all fields of an event but its ranks


class Step:
    """Collects the slices of one step."""

    def __init__(self, entry: Place) -> None:
        self.number = entry.whole("plan_step", 0, 10**9)
        self.run_step = None if entry.fields.get("run_step") is None else entry.whole("run_step", 0, 10**9)
        self.start = entry.number("start_us")  # microseconds, as in the slices
        self.seconds = entry.number("seconds")
        self.alike: dict[str, str] = entry.value("groups_alike", dict, {})
        if not all(isinstance(group, str) for group in self.alike.values()):
            raise entry.wrong("groups_alike", "`groups_alike` has another type than planner writes")
        self.groups: dict[str, str] = {}
        self.tokens: dict[str, int] = {}
        self.kinds: dict[str, tuple[Phase, str]] = {}
        self.met: dict[Key, list[set[int]]] = {}

    def add(self, key: Key, ranks: tuple[int, ...]) -> None:
        """Add a slice to the event it is part of; a second one on the same rank is another event."""
        events = self.met.setdefault(key, [])
        for event in events:
            if event.isdisjoint(ranks):
                event.update(ranks)
                return
        events.append({*ranks})

    def recorded(self, label: Label, plan: str, ranks: int) -> Recorded:
        events = tuple(
            Event(key[0], *self.kinds[key[0]], Ranks(sorted(of)), key[1], key[2], key[3], source(key[4]), *key[5:])
            for key, events in self.met.items()
            for of in events
        )
        timeline = Timeline(events, self.seconds, ranks, groups=self.alike)
        return Recorded(timeline, label, self.groups, self.tokens, plan, self.number, self.run_step)


def record_slice(record: Place, steps: list[Step], represented: Mapping[int, Ranks], ranks: int) -> None:
    """Add one slice to the step it belongs to. Raises InputError."""
    args = record.inside("args")
    at = args.value("step", int, 0)
    if not 0 <= at < len(steps):
        raise args.wrong("step", f"`step` is {at}, the trace has {len(steps)}")
    step, id = steps[at], args.value("task", str)
    phase = record.one_of("cat", tuple(STREAMS))
    step.kinds[id] = (phase, args.value("module", str))
    step.groups[id] = args.value("group", str)
    step.tokens[id] = args.whole("tokens", 0, 10**15)
    rank = record.whole("pid", 0, ranks - 1)
    start, length = round(record.number("ts") - step.start, 3), record.number("dur")
    if start < 0:
        raise record.wrong("ts", f"{id} starts before its step")
    key = (
        id,
        seconds(start),
        seconds(start + length),
        round(args.number("comm_ms", 0.0) * MS, 9),
        args.one_of("source", get_args(Source)),
        args.number("spread", 0.0),
        args.value("cause", str, ""),
    )
    step.add(key, represented.get(rank, Ranks((rank,))))


def seconds(microseconds: float) -> float:
    """Microseconds in seconds, to the nanosecond."""
    return round(microseconds * US, 9)


def source(word: str) -> Source:
    return word  # type: ignore[return-value]  # `one_of` has checked it
