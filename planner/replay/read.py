"""Reads a trace file of torch.profiler into a RecordedTrace; anomalies that do no harm become notes.

Host spans are operators, annotations and all calls of the device runtime; of Python frames only modules are kept.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.replay.about import About
from planner.replay.calls import does
from planner.replay.decode import FIX, Args, Decoding, Either, Event, number, whole
from planner.replay.flows import Flows, text
from planner.replay.spans import Spans, middle
from planner.replay.trace import Call, Mark, Op, Trace, Waited
from planner.units import US

DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "privateuse1_runtime"}
OPERATORS = {"cpu_op", "operator"}
ANNOTATIONS = {"user_annotation", "python_function"}
STEP = re.compile(r"^ProfilerStep#?(\d+)")
MODULE = "nn.Module: "
NO_ARGS = Args()
MAX_SPANS = 4_000_000  # of operators, calls and device operations together

Kept = NDArray[np.bool_]
Row = tuple[str, int, float, float, int, int]


def read(path: str | Path) -> Trace:
    """Read the trace at `path`. Raises InputError."""
    decoding = Decoding(Path(path))
    reading = Reading(str(path))
    for events in decoding.events():
        reading.add(events)
    if decoding.file.events is None:
        raise InputError("the file has no `traceEvents`", where=str(path), fix=FIX)
    return reading.trace(About(str(path), decoding.file))


class Reading:
    """Sorts events into host spans, calls, device operations, steps and arrows, and assembles a trace of them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.odd = Counter[str]()
        self.threads: dict[tuple[str, str], int] = {}
        self.streams: dict[tuple[int, int | str], int] = {}
        self.groups: dict[str, int] = {"": 0}
        self.kinds = sorted({*DEVICE.values()})
        self.host, self.calls, self.steps = Spans(), Spans(), Spans()
        self.ops = {kind: Spans() for kind in self.kinds}
        self.waited: dict[int, Waited] = {}
        self.flows = Flows()

    def add(self, events: list[Event]) -> None:
        """Add a batch of events. Raises InputError."""
        for event in events:
            if event.ph == "X":
                self.span(event)
            elif event.ph in ("s", "f") and not self.flows.add(event):
                self.odd["without a time"] += 1
        if len(self.host) + sum(map(len, self.ops.values())) > MAX_SPANS:
            what = f"the trace has more than {MAX_SPANS:,} operators, calls and device operations"
            raise InputError(what, where=self.source, fix="record fewer steps")

    def span(self, event: Event) -> None:
        """Add a complete event (`ph: X`)."""
        category = (event.cat or "").lower()
        start, duration = number(event.ts), number(event.dur)
        if start is None:
            self.odd["without a time"] += 1
            return
        if duration is None or duration < 0:
            self.odd["that end before they begin" if duration is not None else "without a duration"] += 1
            duration = 0.0
        times = (start, duration)
        if category in DEVICE:
            self.op(event, DEVICE[category], times)
        elif category in CALLS:
            self.call(event, times)
        elif category == "cuda_sync":
            args = event.args or NO_ARGS
            self.waited[whole(args.correlation)] = Waited(
                self.known_stream(args.device, args.stream),
                self.known_stream(args.device, args.on_stream),
                whole(args.record),
            )
        elif category in OPERATORS or category in ANNOTATIONS:
            self.operator(event, category, times)

    def op(self, event: Event, kind: str, times: tuple[float, float]) -> None:
        args = event.args or NO_ARGS
        device = event.pid if args.device is None else args.device
        stream = self.stream(device, event.tid if args.stream is None else args.stream)
        group = str(args.group) if args.group is not None else ""
        number_of = self.groups.setdefault(group, len(self.groups))
        self.ops[kind].add(stream, times, event.name or "", self.correlation(args), number_of)

    def call(self, event: Event, times: tuple[float, float]) -> None:
        name, thread = event.name or "", self.thread(event)
        self.host.add(thread, times, name)
        if does(name) != "nothing":
            self.calls.add(thread, times, name, self.correlation(event.args or NO_ARGS))

    def operator(self, event: Event, category: str, times: tuple[float, float]) -> None:
        name = event.name or ""
        if category == "python_function" and not name.startswith(MODULE):
            return
        thread = self.thread(event)
        if STEP.match(name) and category == "user_annotation":
            self.steps.add(thread, times, name)
        self.host.add(thread, times, name, extra=category in ANNOTATIONS)

    def thread(self, event: Event) -> int:
        return self.threads.setdefault((text(event.pid), text(event.tid)), len(self.threads))

    def stream(self, device: Either, stream: Either) -> int:
        """The number of a stream, which the file may identify by a number or by another name."""
        stream_id = whole(stream, 0) if stream is None or number(stream) is not None else str(stream)
        return self.streams.setdefault((whole(device, 0), stream_id), len(self.streams))

    def known_stream(self, device: Either, stream: Either) -> int:
        """The number of a stream; −1 where the event does not name one."""
        return -1 if stream is None or whole(stream, 0) < 0 else self.stream(device, stream)

    def correlation(self, args: Args) -> int:
        """The correlation id that a launching call shares with its device operations; −1: none."""
        found = whole(args.correlation if args.correlation is not None else args.external)
        return found if -1 <= found < 1 << 62 else -1

    def trace(self, about: About) -> Trace:
        """The trace of all events that were added. Raises InputError."""
        all_spans = [self.host, *self.ops.values()]
        center = middle(all_spans)
        plausible = {id(spans): spans.near(center) for spans in (*all_spans, self.calls, self.steps)}
        implausible = sum(int((~plausible[id(spans)]).sum()) for spans in all_spans)
        self.odd["dropped, more than a day from the others,"] += implausible
        if not plausible[id(self.host)].any():
            message = "the trace has no spans of a host (`ph: X` with a `cat` such as cpu_op)"
            raise InputError(message, where=self.source, fix=FIX)
        base = min(
            float(spans.starts()[plausible[id(spans)]].min()) for spans in all_spans if plausible[id(spans)].any()
        )
        calls, ops = self.joined(base, plausible)
        steps = [Mark(*each[:4]) for each in rows(self.steps, base, plausible[id(self.steps)])]
        notes = [f"{count} events {what} in the trace" for what, count in sorted(self.odd.items()) if count]
        return Trace(
            source=self.source,
            rank=about.rank(),
            world_size=about.world_size(),
            device=about.device(),
            versions=about.versions(),
            base=base * US,
            threads=tuple(f"thread {tid}" for _, tid in self.threads),
            streams=tuple(f"stream {stream}" for _, stream in self.streams),
            host=self.host.host(base, plausible[id(self.host)]),
            calls=tuple(sorted(calls, key=lambda call: (call.thread, call.start, call.end))),
            ops=tuple(sorted(ops, key=lambda op: (op.stream, op.start, op.end))),
            waited=self.waited,
            links=tuple(self.flows.links(self.threads, US, base)),
            steps=tuple(sorted(steps, key=lambda mark: (mark.start, mark.end))),
            notes=(*about.notes(), *notes),
        )

    def joined(self, base: float, plausible: dict[int, Kept]) -> tuple[list[Call], list[Op]]:
        """Calls and device operations; without correlation ids they are joined by launch arrows."""
        by_call, by_op = (
            self.flows.launches() if any(-1 in spans.correlation for spans in self.ops.values()) else ({}, {})
        )
        groups = [*self.groups]
        found = rows(self.calls, base, plausible[id(self.calls)], by_call)
        calls = [Call(*each[:5]) for each in found]
        ops = []
        for kind, spans in self.ops.items():
            for name, stream, begin, end, correlation, group in rows(spans, base, plausible[id(spans)], by_op):
                ops.append(Op(name, kind, stream, begin, end, correlation, groups[group]))
        return calls, ops


def rows(spans: Spans, base: float, plausible: Kept, arrows: dict[float, int] | None = None) -> Iterator[Row]:
    """Name, track, begin and end in seconds, correlation (else that of an arrow that starts there) and tag of spans."""
    names = [*spans.names]
    begins, ends = spans.seconds(base)
    for i in np.flatnonzero(plausible).tolist():
        correlation = spans.correlation[i]
        if correlation < 0 and arrows:
            correlation = arrows.get(spans.start[i], -1)
        yield names[spans.name[i]], spans.where[i], float(begins[i]), float(ends[i]), correlation, spans.extra[i]
