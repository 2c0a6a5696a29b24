"""Reads trace files of torch.profiler into RecordedTraces; anomalies that do no harm become notes.

Host spans are operators, annotations and all calls of the device runtime; of Python frames only modules are kept. A
folder stands for the traces below it, whatever else a run left there. A trace is told by its head: the profiler writes
`traceEvents` after a few lines about the machine. What has none is another file, as an execution trace is, and is named
in a note rather than refused.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.files import read_head
from planner.replay.recording.event_arrays import FlowArrows, SpanArrays, median_start, normalised_id
from planner.replay.recording.kineto_events import (
    EXPORT_FIX,
    NO_ARGS,
    EventArgs,
    EventDecoder,
    NumberOrText,
    TraceEvent,
    TraceMetadata,
    parse_int,
    parse_number,
)
from planner.replay.recording.recorded_names import (
    COLLECTIVE_CALL,
    GARBAGE,
    HOST_COLLECTIVE,
    RUNTIME_PREFIX,
    call_effect,
    host_kind,
)
from planner.replay.recording.recorded_trace import (
    PROFILER_STEP,
    DeviceOp,
    RecordedTrace,
    RuntimeCall,
    StepMark,
    SyncTarget,
)
from planner.units import MIB, US

DEVICE_CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
CALL_CATEGORY = re.compile(r"(.*_)?(runtime|driver)")  # cuda_, hip_, xpu_, mtia_, privateuse1_, …
CALL = "runtime"
OPERATOR_CATEGORIES = {"cpu_op", "operator"}
ANNOTATION_CATEGORIES = {"user_annotation", "python_function"}
MODULE = "nn.Module: "
HOST_CORRELATIONS = 1 << 61  # the first id of collectives of host threads, which the file does not number
MAX_SPANS = 4_000_000  # of operators, calls and device operations together
SpanMask = NDArray[np.bool_]
ResolvedSpan = tuple[str, int, float, float, int, int]
HEAD = MIB  # bytes of a file, uncompressed, before its events
SUFFIXES = (".json", ".json.gz")


def read_kineto_trace(path: str | Path) -> RecordedTrace:
    """Read the trace at `path`. Raises InputError."""
    decoding = EventDecoder(Path(path))
    reading = TraceAssembler(str(path))
    for events in decoding.events():
        reading.add(events)
    if decoding.file.events is None:
        raise InputError("the file has no `traceEvents`", where=str(path), fix=EXPORT_FIX)
    return reading.assemble(TraceMetadata(str(path), decoding))


class TraceAssembler:
    """Sorts events into host spans, calls, device operations, steps and arrows, and assembles a trace of them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.anomalies = Counter[str]()
        self.threads: dict[tuple[str, str], int] = {}
        self.threads_as_written: dict[tuple[NumberOrText, NumberOrText], int] = {}
        self.streams: dict[tuple[int, int | str], int] = {}
        self.groups: dict[str, int] = {"": 0}
        self.kinds = sorted({*DEVICE_CATEGORIES.values(), "collective"})
        self.opened: dict[tuple[str, str], list[TraceEvent]] = {}  # by thread, events that have begun and not ended
        self.collective_calls = SpanArrays()
        self.host, self.calls, self.steps = SpanArrays(), SpanArrays(), SpanArrays()
        self.ops = {kind: SpanArrays() for kind in self.kinds}
        self.sync_targets: dict[int, SyncTarget] = {}
        self.flows = FlowArrows()
        self.correlated = False  # whether operations of the device have correlation ids

    def add(self, events: list[TraceEvent]) -> None:
        """Add a batch of events. Raises InputError."""
        for event in events:
            if event.ph == "X":
                self.add_span(event)
            elif event.ph in ("B", "E"):
                self.add_half(event)
            elif event.ph in ("s", "f"):
                if self.correlated and event.cat == "ac2g":
                    continue  # what correlation ids say is not asked of arrows
                if not self.flows.add(event):
                    self.anomalies["without a time"] += 1
        if len(self.host) + sum(map(len, self.ops.values())) > MAX_SPANS:
            what = f"the trace has more than {MAX_SPANS:,} operators, calls and device operations"
            raise InputError(what, where=self.source, fix="record fewer steps")

    def add_half(self, event: TraceEvent) -> None:
        """Add one end of a span that is written as two events (`ph: B`, `ph: E`)."""
        begun = self.opened.setdefault((normalised_id(event.pid), normalised_id(event.tid)), [])
        if event.ph == "B":
            begun.append(event)
            return
        start = parse_number(begun[-1].ts) if begun else None
        end = parse_number(event.ts)
        if start is None or end is None:
            self.anomalies["that end and never began"] += 1
            return
        whole = begun.pop()
        whole.dur = end - start
        self.add_span(whole)

    def add_span(self, event: TraceEvent) -> None:
        """Add a complete event (`ph: X`)."""
        if event.cat:
            category = category_of(event.cat)
        else:
            category = guessed_category(event)
            self.anomalies["without a category, of which the name and the stream tell what they are,"] += 1
        start, duration = parse_number(event.ts), parse_number(event.dur)
        if start is None:
            self.anomalies["without a time"] += 1
            return
        if duration is None or duration < 0:
            self.anomalies["that end before they begin" if duration is not None else "without a duration"] += 1
            duration = 0.0
        times = (start, duration)
        if category in DEVICE_CATEGORIES:
            self.add_op(event, DEVICE_CATEGORIES[category], times)
        elif category == CALL:
            self.add_call(event, times)
        elif category == "cuda_sync":
            args = event.args or NO_ARGS
            self.sync_targets[parse_int(args.correlation)] = SyncTarget(
                self.stream_if_named(args.device, args.stream),
                self.stream_if_named(args.device, args.on_stream),
                parse_int(args.record),
            )
        elif (event.name or "").startswith(HOST_COLLECTIVE):
            event.args = EventArgs(device=-1, stream=normalised_id(event.tid))
            self.add_op(event, "collective", times)
        elif category in OPERATOR_CATEGORIES or category in ANNOTATION_CATEGORIES:
            self.add_host_span(event, category, times)

    def add_op(self, event: TraceEvent, kind: str, times: tuple[float, float]) -> None:
        args = event.args or NO_ARGS
        device = event.pid if args.device is None else args.device
        stream = self.stream_number(device, event.tid if args.stream is None else args.stream)
        group = str(args.group) if args.group is not None else ""
        number_of = self.groups.setdefault(group, len(self.groups))
        self.correlated = self.correlated or args.correlation is not None
        self.ops[kind].add(stream, times, event.name or "", self.correlation(args), number_of)

    def add_call(self, event: TraceEvent, times: tuple[float, float]) -> None:
        name, thread = event.name or "", self.thread_number(event)
        self.host.add(thread, times, name)
        if call_effect(name) != "nothing" or not RUNTIME_PREFIX.match(name):
            self.calls.add(thread, times, name, self.correlation(event.args or NO_ARGS))

    def add_host_span(self, event: TraceEvent, category: str, times: tuple[float, float]) -> None:
        name = event.name or ""
        if category == "python_function" and not name.startswith(MODULE) and host_kind(name) != GARBAGE:
            return
        thread = self.thread_number(event)
        if PROFILER_STEP.match(name) and category == "user_annotation":
            self.steps.add(thread, times, name)
        if category in OPERATOR_CATEGORIES and COLLECTIVE_CALL.match(name):
            self.collective_calls.add(thread, times, name)
        self.host.add(thread, times, name, tag=category in ANNOTATION_CATEGORIES)

    def thread_number(self, event: TraceEvent) -> int:
        known = self.threads_as_written.get((event.pid, event.tid))
        if known is None:
            named = (normalised_id(event.pid), normalised_id(event.tid))
            known = self.threads_as_written[event.pid, event.tid] = self.threads.setdefault(named, len(self.threads))
        return known

    def stream_number(self, device: NumberOrText, stream: NumberOrText) -> int:
        """The number of a stream, which the file may identify by a number or by another name."""
        stream_id = parse_int(stream, 0) if stream is None or parse_number(stream) is not None else str(stream)
        return self.streams.setdefault((parse_int(device, 0), stream_id), len(self.streams))

    def stream_if_named(self, device: NumberOrText, stream: NumberOrText) -> int:
        """The number of a stream; −1 where the event does not name one."""
        return -1 if stream is None or parse_int(stream, 0) < 0 else self.stream_number(device, stream)

    def correlation(self, args: EventArgs) -> int:
        """The correlation id that a launching call shares with its device operations; −1: none."""
        found = parse_int(args.correlation if args.correlation is not None else args.external)
        return found if -1 <= found < 1 << 62 else -1

    def assemble(self, about: TraceMetadata) -> RecordedTrace:
        """The trace of all events that were added. Raises InputError."""
        self.number_host_collectives()
        left_open = sum(map(len, self.opened.values()))
        self.anomalies["that begin and never end"] += left_open
        all_spans = [self.host, *self.ops.values()]
        center = median_start(all_spans)
        plausible = {id(spans): spans.plausible(center) for spans in (*all_spans, self.calls, self.steps)}
        implausible = sum(int((~plausible[id(spans)]).sum()) for spans in all_spans)
        self.anomalies["dropped, more than a day from the others,"] += implausible
        if not any(each.any() for each in plausible.values()):
            message = "the trace has no spans of a host or a device (`ph: X` with a `cat` such as cpu_op or kernel)"
            raise InputError(message, where=self.source, fix=EXPORT_FIX)
        base = min(
            float(spans.starts_durations()[0, plausible[id(spans)]].min())
            for spans in all_spans
            if plausible[id(spans)].any()
        )
        calls, ops = self.join_launches(base, plausible)
        steps = [StepMark(*each[:4]) for each in resolved_spans(self.steps, base, plausible[id(self.steps)])]
        notes = [f"{count} events {what} in the trace" for what, count in sorted(self.anomalies.items()) if count]
        return RecordedTrace(
            source=self.source,
            rank=about.rank(),
            world_size=about.world_size(),
            device=about.device(),
            host_name=about.host(),
            versions=about.versions(),
            base=base * US,
            threads=tuple(f"thread {tid}" for _, tid in self.threads) or ("no thread recorded",),
            streams=tuple(f"stream {stream}" for _, stream in self.streams),
            host=self.host.host_spans(base, plausible[id(self.host)]),
            calls=tuple(sorted(calls, key=lambda call: (call.thread, call.start, call.end))),
            ops=tuple(sorted(ops, key=lambda op: (op.stream, op.start, op.end))),
            sync_targets=self.sync_targets,
            arrows=tuple(self.flows.forward_backward_arrows(self.threads, US, base)),
            steps=tuple(sorted(steps, key=lambda mark: (mark.start, mark.end))),
            notes=(*about.notes(), *notes),
        )

    def number_host_collectives(self) -> None:
        """Give collectives of host threads, and the operators that have them done, ids by their order; where not as
        many are of both, of each kind of which there are.
        """
        found, calls = self.ops["collective"], self.collective_calls
        columns = [spans.columns() for spans in (found, calls)]
        ordered = [np.argsort(spans.starts_durations()[0], kind="stable").tolist() for spans in (found, calls)]
        kinds = [[*map(collective_name, spans.names)] for spans in (found, calls)]
        number = HOST_CORRELATIONS
        for kind in sorted({*kinds[0]}) if len(found) != len(calls) else ("",):
            mine = [
                [i for i in order if kind in ("", names[each[1, i]])]
                for order, names, each in zip(ordered, kinds, columns, strict=True)
            ]
            for op, call in zip(*mine, strict=True) if len(mine[0]) == len(mine[1]) else ():
                columns[0][2, op] = columns[1][2, call] = number
                number += 1
        names = [*calls.names]
        times = calls.starts_durations().T.tolist()
        for (track, name, correlation, _), each in zip(columns[1].T.tolist(), times, strict=True):
            self.calls.add(track, each, names[name], correlation)

    def join_launches(self, base: float, plausible: dict[int, SpanMask]) -> tuple[list[RuntimeCall], list[DeviceOp]]:
        """Calls and device operations; without correlation ids they are joined by launch arrows."""
        by_call, by_op = (
            self.flows.launch_correlations()
            if any((spans.columns()[2] < 0).any() for spans in self.ops.values())
            else ({}, {})
        )
        groups = [*self.groups]
        found = resolved_spans(self.calls, base, plausible[id(self.calls)], by_call)
        calls = [RuntimeCall(*each[:5]) for each in found]
        ops = []
        for kind, spans in self.ops.items():
            for name, stream, begin, end, correlation, group in resolved_spans(
                spans, base, plausible[id(spans)], by_op
            ):
                ops.append(DeviceOp(name, kind, stream, begin, end, correlation, groups[group]))
        return calls, ops


def collective_name(name: str) -> str:
    """What `gloo:all_reduce` and `c10d::allreduce_` have in common."""
    return name.rpartition(":")[2].replace("_", "")


@lru_cache(maxsize=1000)
def category_of(text: str) -> str:
    """A category in lower case; that of all runtimes' and drivers' calls is one."""
    lower = text.lower()
    return CALL if CALL_CATEGORY.fullmatch(lower) else lower


def guessed_category(event: TraceEvent) -> str:
    """What an event without a category is, by its name and its stream."""
    name, args = event.name or "", event.args or NO_ARGS
    if args.stream is not None:
        lower = name.lower()
        return next((kind for kind in ("memcpy", "memset") if lower.startswith(kind)), "kernel")
    if RUNTIME_PREFIX.match(name):
        return CALL
    return "user_annotation" if PROFILER_STEP.match(name) else "operator"


def resolved_spans(
    spans: SpanArrays, base: float, plausible: SpanMask, arrows: dict[float, int] | None = None
) -> Iterator[ResolvedSpan]:
    """Name, track, begin and end in seconds, correlation (else that of an arrow that starts there) and tag of spans."""
    names = [*spans.names]
    begins, ends = (each[plausible].tolist() for each in spans.begin_end_seconds(base))
    starts = spans.starts_durations()[0, plausible].tolist()
    numbers = spans.columns()[:, plausible].T.tolist()
    for (track, name, correlation, tag), start, begin, end in zip(numbers, starts, begins, ends, strict=True):
        if correlation < 0 and arrows:
            correlation = arrows.get(start, -1)
        yield names[name], track, begin, end, correlation, tag


class FoundTraces(NamedTuple):
    """The files that some paths stand for, in the order of their paths."""

    traces: list[Path]
    notes: list[str]  # of what is left out


def find_traces(paths: Iterable[Path]) -> FoundTraces:
    """Files stand for themselves. Raises InputError where a folder has no trace."""
    traces: list[Path] = []
    notes: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            traces.append(path)
            continue
        found = sorted(file for file in path.rglob("*.json*") if file.name.endswith(SUFFIXES) and os.path.isfile(file))
        own = [file for file in found if has_events(file)]
        if not own:
            fix = "name one with the files of torch.profiler, *.json or *.json.gz; one of each rank"
            raise InputError("the folder has no trace", where=str(path), fix=fix)
        others = [str(file.relative_to(path)) for file in found if file not in own]
        notes += [f"{path}: {name} is no trace of torch.profiler, and is left out" for name in others]
        traces += own
    return FoundTraces(traces, notes)


def has_events(path: Path) -> bool:
    """Whether a file's head begins the events of a trace; one that cannot be read does, so that its error is shown."""
    try:
        return b'"traceEvents"' in read_head(path, HEAD)
    except InputError:
        return True
