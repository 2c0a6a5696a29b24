"""Spans and flow arrows of a trace collected in arrays, since there may be millions of them; times are in microseconds
as recorded.

Arrows lead from forward to backward operators, and from calls to the operations that they launch; the second kind is
used only where events carry no correlation ids.
"""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from planner.replay.recording.kineto_events import NumberOrText, TraceEvent, parse_number
from planner.replay.recording.recorded_trace import ForwardBackwardArrow, HostSpans

DAY = 24 * 3600 * 1e6  # µs; no capture is that long, so a time farther from the median is wrong
NO_COLUMNS = np.zeros((4, 0), dtype=np.int64)


class SpanArrays:
    """Start and duration of each span in one array; track (thread or stream), name, correlation id, tag in another."""

    def __init__(self) -> None:
        self.times, self.numbers = array("d"), array("q")
        self.names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.times) // 2

    def add(self, where: int, times: tuple[float, float], name: str, correlation: int = -1, tag: int = 0) -> None:
        names = self.names
        self.times.extend(times)
        self.numbers.extend((where, names.setdefault(name, len(names)), correlation, tag))

    def columns(self) -> NDArray[np.int64]:
        """Track, name, correlation and tag of each span, (4, n); what is written there stays."""
        return np.frombuffer(self.numbers, dtype=np.int64).reshape(-1, 4).T if self.numbers else NO_COLUMNS

    def starts_durations(self) -> NDArray[np.float64]:
        """In µs as recorded, (2, n)."""
        return np.frombuffer(self.times, dtype=np.float64).reshape(-1, 2).T if self.times else np.zeros((2, 0))

    def begin_end_seconds(self, base: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Begin and end in seconds since `base` µs, in whole nanoseconds so that adjacent spans touch exactly; (n,)."""
        start, duration = self.starts_durations()
        start = start - base
        return np.rint(start * 1e3) / 1e9, np.rint((start + duration) * 1e3) / 1e9

    def plausible(self, middle: float) -> NDArray[np.bool_]:
        """Which spans have a plausible time: within a day of `middle`; (n,)."""
        start, duration = self.starts_durations()
        found: NDArray[np.bool_] = (np.abs(start - middle) <= DAY) & (duration <= DAY)
        return found

    def host_spans(self, base: float, kept: NDArray[np.bool_]) -> HostSpans:
        """Spans of the host by thread, each before those nested in it; a tag of 1 marks annotations."""
        start, end = (each[kept] for each in self.begin_end_seconds(base))
        thread, name, _, tag = self.columns()[:, kept].astype(np.int32)
        order = np.lexsort((-end, start, thread))
        return HostSpans(thread[order], start[order], end[order], name[order], tag[order] > 0, tuple(self.names))


def median_start(spans: Iterable[SpanArrays]) -> float:
    """The median start."""
    starts = np.concatenate([each.starts_durations()[0] for each in spans])
    return float(np.median(starts)) if len(starts) else 0.0


ArrowPoint = tuple[str, str, float]  # process, thread, time as written


class FlowArrows:
    """Collects the two ends of arrows."""

    def __init__(self) -> None:
        self.forward: dict[str, ArrowPoint] = {}
        self.backward: dict[str, ArrowPoint] = {}
        self.ids: dict[str, int] = {}
        self.calls, self.begun = ArrowEnds(), ArrowEnds()

    def add(self, event: TraceEvent) -> bool:
        """Add one end of an arrow; False if its time cannot be read."""
        time = parse_number(event.ts)
        if time is None:
            return False
        if event.cat == "fwdbwd":
            ends = self.forward if event.ph == "s" else self.backward
            ends[normalised_id(event.id)] = (normalised_id(event.pid), normalised_id(event.tid), time)
        elif event.cat == "ac2g":
            (self.calls if event.ph == "s" else self.begun).add(self.id(event.id), time)
        return True

    def id(self, value: NumberOrText) -> float:
        found = parse_number(value)
        return float(-1 - self.ids.setdefault(str(value), len(self.ids))) if found is None else found

    def forward_backward_arrows(
        self, threads: dict[tuple[str, str], int], seconds: float, base: float
    ) -> list[ForwardBackwardArrow]:
        """Arrows from forward to backward; `seconds`: length of the file's unit, `base`: time zero in that unit."""
        found = []
        for key, (pid, tid, time) in self.forward.items():
            to_pid, to_tid, to_time = self.backward.get(key, ("", "", 0.0))
            if (pid, tid) in threads and (to_pid, to_tid) in threads:
                times = ((time - base) * seconds, (to_time - base) * seconds)
                found.append(ForwardBackwardArrow(threads[pid, tid], times[0], threads[to_pid, to_tid], times[1]))
        return sorted(found, key=lambda arrow: (arrow.to_thread, arrow.to_time))

    def launch_correlations(self) -> tuple[dict[float, int], dict[float, int]]:
        """Numbers of launch arrows by start of the call and by start of the launched operation, in the file's unit."""
        ends = dict(zip(self.begun.id, self.begun.time, strict=True))
        tails = dict(zip(self.calls.id, self.calls.time, strict=True))
        both = [(time, ends[key]) for key, time in tails.items() if key in ends]
        return {tail: i for i, (tail, _) in enumerate(both)}, {head: i for i, (_, head) in enumerate(both)}


class ArrowEnds:
    """One end of each of many arrows: id and time."""

    def __init__(self) -> None:
        self.id, self.time = array("d"), array("d")

    def add(self, number_of: float, time: float) -> None:
        self.id.append(number_of)
        self.time.append(time)


def normalised_id(value: NumberOrText) -> str:
    """A process or thread id as text: 7, 7.0 and "7" are the same."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
