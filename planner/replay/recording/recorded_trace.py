"""The recorded trace of one rank: runtime calls, device operations, host spans, steps; and which operators and
annotations enclose a moment on a thread.

Times are in seconds since the first event of the capture; `base` is the time of that event on the host's clock.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.replay.recording.recorded_names import RUNTIME_PREFIX

PROFILER_STEP = re.compile(r"^ProfilerStep#?(\d+)")
Moment = tuple[int, float]  # thread, seconds
BETWEEN_OPERATORS = "between operators"


class RuntimeCall(NamedTuple):
    """A call of the device runtime that enqueues work on a stream, waits for some, or records an event."""

    name: str
    thread: int
    start: float
    end: float
    correlation: int  # shared with the operations that it launches; −1: none


class DeviceOp(NamedTuple):
    """An operation of the device on a stream: a kernel, a memcpy or a memset."""

    name: str
    kind: str  # kernel, memcpy, memset; collective: on threads of the host
    stream: int
    start: float
    end: float
    correlation: int
    group: str  # process group of a collective; "": not recorded


class SyncTarget(NamedTuple):
    """What newer traces record (`cuda_sync`) about a call that waits; streams by number, −1: not recorded."""

    stream: int
    awaited_stream: int
    recording_call: int  # correlation of the call that recorded the awaited event


class StepMark(NamedTuple):
    """A training step: an annotation `ProfilerStep#n`."""

    name: str
    thread: int
    start: float
    end: float


class ForwardBackwardArrow(NamedTuple):
    """A flow arrow from a forward operator to its backward operator."""

    thread: int
    time: float
    to_thread: int
    to_time: float


@dataclass(frozen=True, slots=True)
class HostSpans:
    """Spans on host threads, sorted by thread, start and −end: operators, annotations, runtime calls; (n,) each."""

    thread: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    name: NDArray[np.int32]  # index into `names`
    annotation: NDArray[np.bool_]  # annotations label a span of time, which may contain waits
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """The capture of one rank."""

    source: str
    rank: int | None
    world_size: int | None
    device: str
    host_name: str
    versions: dict[str, str]
    base: float  # seconds, on the clock of the host
    threads: tuple[str, ...]
    streams: tuple[str, ...]
    host: HostSpans
    calls: tuple[RuntimeCall, ...]
    ops: tuple[DeviceOp, ...]  # sorted by stream and start
    sync_targets: dict[int, SyncTarget]  # by correlation of the waiting call
    arrows: tuple[ForwardBackwardArrow, ...]
    steps: tuple[StepMark, ...]
    notes: tuple[str, ...]

    @property
    def end(self) -> float:
        """The end of the last event in seconds."""
        host = float(self.host.end.max(initial=0.0))
        return max(host, max((op.end for op in self.ops), default=0.0))


class EnclosingSpans(NamedTuple):
    """Spans that enclose a moment, outermost first, without steps and runtime calls."""

    annotations: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def operator(self) -> str:
        """The outermost operator; without one, the innermost annotation."""
        return next(iter(self.operators), "") or next(reversed(self.annotations), BETWEEN_OPERATORS)


def enclosing_spans(host: HostSpans, moments: Sequence[Moment]) -> list[EnclosingSpans]:
    """The enclosing spans of each moment."""
    found = [EnclosingSpans((), ())] * len(moments)
    threads, starts, ends, names = (each.tolist() for each in (host.thread, host.start, host.end, host.name))
    annotations = host.annotation.tolist()
    shown = [not (PROFILER_STEP.match(name) or RUNTIME_PREFIX.match(name)) for name in host.names]
    opened: list[int] = []  # spans that may enclose the moment
    at, here = 0, -1
    for i in sorted(range(len(moments)), key=lambda i: moments[i]):
        thread, time = moments[i]
        while at < len(starts) and (threads[at], starts[at]) <= (thread, time):
            if threads[at] != here:
                here, opened = threads[at], []
            while opened and ends[opened[-1]] <= starts[at]:
                opened.pop()
            opened.append(at)
            at += 1
        inside = [span for span in opened if ends[span] >= time and shown[names[span]]] if here == thread else []
        annotated, operators = (
            [host.names[names[span]] for span in inside if annotations[span] == kind] for kind in (True, False)
        )
        found[i] = EnclosingSpans(tuple(annotated), tuple(operators))
    return found
