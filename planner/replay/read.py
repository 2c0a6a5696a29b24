"""A file of a profiler as a Trace; what is odd about it but can be lived with is said in its notes.

Host events are operators, annotations and all calls of the runtime; of Python's own frames only modules are kept.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from planner.errors import InputError
from planner.replay.about import About
from planner.replay.calls import does
from planner.replay.decode import FIX, Args, Either, Event, File, decoded, number, whole
from planner.replay.flows import correlated, links, text
from planner.replay.host import HostSpans
from planner.replay.trace import Call, Mark, Op, Trace, Waited
from planner.units import US

DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "privateuse1_runtime"}
OPERATORS = {"cpu_op", "operator"}
ANNOTATIONS = {"user_annotation", "python_function"}
STEP = re.compile(r"^ProfilerStep#?(\d+)")
MODULE = "nn.Module: "
NO_ARGS = Args()


def read(path: str | Path) -> Trace:
    """The trace at `path`. Raises InputError."""
    file = decoded(Path(path))
    if file.events is None:
        raise InputError("the file has no `traceEvents`", where=str(path), fix=FIX)
    return Reading(str(path), file).trace()


class Reading:
    """Events, sorted into what they are."""

    def __init__(self, source: str, file: File) -> None:
        self.source, self.file = source, file
        self.odd = Counter[str]()
        self.threads: dict[tuple[str, str], int] = {}
        self.streams: dict[tuple[int, int], int] = {}
        self.host = HostSpans()
        self.calls: list[Call] = []
        self.ops: list[Op] = []
        self.steps: list[Mark] = []
        self.waited: dict[int, Waited] = {}
        events = file.events or []
        self.base = min((t for t in self.times(events)), default=0.0)

    def times(self, events: list[Event]) -> Iterator[float]:
        """When spans that count begin, as they are written."""
        for event in events:
            if event.ph == "X" and (event.cat or "").lower() in DEVICE.keys() | CALLS | OPERATORS | ANNOTATIONS:
                start = number(event.ts)
                if start is not None:
                    yield start

    def trace(self) -> Trace:
        events = self.file.events or []
        for event in events:
            if event.ph == "X":
                self.span(event)
        if not self.host.count:
            message = "the trace has no spans of a host (`ph: X` with a `cat` such as cpu_op)"
            raise InputError(message, where=self.source, fix=FIX)
        if any(op.correlation < 0 for op in self.ops):
            self.calls, self.ops = correlated(events, self.calls, self.ops, (US, self.base))
        found = links(events, self.threads, US, self.base)
        self.file.events = None
        self.ops.sort(key=lambda op: (op.stream, op.start, op.end))
        self.calls.sort(key=lambda call: (call.thread, call.start, call.end))
        self.steps.sort(key=lambda mark: (mark.start, mark.end))
        about = About(self.source, self.file)
        return Trace(
            source=self.source,
            rank=about.rank(),
            world_size=about.world_size(),
            device=about.device(),
            versions=about.versions(),
            base=self.base * US,
            threads=tuple(f"thread {tid}" for _, tid in self.threads),
            streams=tuple(f"stream {stream}" for _, stream in self.streams),
            host=self.host.sorted(),
            calls=tuple(self.calls),
            ops=tuple(self.ops),
            waited=self.waited,
            links=tuple(found),
            steps=tuple(self.steps),
            notes=tuple(f"{count} events {what} in the trace" for what, count in sorted(self.odd.items())),
        )

    def span(self, event: Event) -> None:
        category = (event.cat or "").lower()
        start, lasts = number(event.ts), number(event.dur)
        if start is None:
            self.odd["without a time"] += 1
            return
        if lasts is None or lasts < 0:
            self.odd["that end before they begin" if lasts is not None else "without a duration"] += 1
            lasts = 0.0
        begin = round((start - self.base) * US, 9)  # whole nanoseconds: what ends as another begins does so exactly
        end = round((start - self.base + lasts) * US, 9)
        if category in DEVICE:
            self.op(event, DEVICE[category], begin, end)
        elif category in CALLS:
            self.call(event, begin, end)
        elif category == "cuda_sync":
            args = event.args or NO_ARGS
            self.waited[whole(args.correlation)] = Waited(
                self.known_stream(args.device, args.stream),
                self.known_stream(args.device, args.on_stream),
                whole(args.record),
            )
        elif category in OPERATORS or category in ANNOTATIONS:
            self.operator(event, category, begin, end)

    def op(self, event: Event, kind: str, begin: float, end: float) -> None:
        args = event.args or NO_ARGS
        device = event.pid if args.device is None else args.device
        where = (whole(device, 0), whole(event.tid if args.stream is None else args.stream, 0))
        stream = self.streams.setdefault(where, len(self.streams))
        group = str(args.group) if args.group is not None else ""
        moved = number(args.bytes) or 0.0
        self.ops.append(Op(event.name or "", kind, stream, begin, end, self.correlation(args), group, moved))

    def call(self, event: Event, begin: float, end: float) -> None:
        name, thread = event.name or "", self.thread(event)
        self.host.add(thread, begin, end, name, annotation=False)
        if does(name) != "nothing":
            self.calls.append(Call(name, thread, begin, end, self.correlation(event.args or NO_ARGS)))

    def operator(self, event: Event, category: str, begin: float, end: float) -> None:
        name = event.name or ""
        if category == "python_function" and not name.startswith(MODULE):
            return
        thread = self.thread(event)
        if STEP.match(name) and category == "user_annotation":
            self.steps.append(Mark(name, thread, begin, end))
        self.host.add(thread, begin, end, name, annotation=category in ANNOTATIONS)

    def thread(self, event: Event) -> int:
        return self.threads.setdefault((text(event.pid), text(event.tid)), len(self.threads))

    def known_stream(self, device: Either, stream: Either) -> int:
        if stream is None or whole(stream, 0) < 0:
            return -1
        return self.streams.setdefault((whole(device, 0), whole(stream, 0)), len(self.streams))

    def correlation(self, args: Args) -> int:
        """What joins a call and what it launched."""
        return whole(args.correlation if args.correlation is not None else args.external)
