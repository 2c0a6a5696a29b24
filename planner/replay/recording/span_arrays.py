"""Spans of a trace collected in arrays, since there may be millions of them; times are in microseconds as recorded."""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from planner.replay.recording.recorded_trace import HostSpans

DAY = 24 * 3600 * 1e6  # µs; no capture is that long, so a time farther from the median is wrong


class SpanArrays:
    """Track (thread or stream), start, duration, name, correlation id and a tag of each span."""

    def __init__(self) -> None:
        self.track, self.name = array("i"), array("i")
        self.start, self.duration = array("d"), array("d")
        self.correlation, self.tag = array("q"), array("i")
        self.names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.start)

    def add(self, where: int, times: tuple[float, float], name: str, correlation: int = -1, extra: int = 0) -> None:
        self.track.append(where)
        self.start.append(times[0])
        self.duration.append(times[1])
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.correlation.append(correlation)
        self.tag.append(extra)

    def starts(self) -> NDArray[np.float64]:
        return np.frombuffer(self.start, dtype=np.float64) if self.start else np.zeros(0)

    def begin_end_seconds(self, base: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Begin and end in seconds since `base` µs, in whole nanoseconds so that adjacent spans touch exactly; (n,)."""
        start = self.starts() - base
        duration = np.frombuffer(self.duration, dtype=np.float64) if self.duration else np.zeros(0)
        return np.rint(start * 1e3) / 1e9, np.rint((start + duration) * 1e3) / 1e9

    def plausible(self, middle: float) -> NDArray[np.bool_]:
        """Which spans have a plausible time: within a day of `middle`; (n,)."""
        start = self.starts()
        duration = np.frombuffer(self.duration, dtype=np.float64) if self.duration else np.zeros(0)
        return (np.abs(start - middle) <= DAY) & (duration <= DAY)

    def host_spans(self, base: float, kept: NDArray[np.bool_]) -> HostSpans:
        """Spans of the host by thread, each before those nested in it; a tag of 1 marks annotations."""
        start, end = (each[kept] for each in self.begin_end_seconds(base))
        thread, name = np.array(self.track, dtype=np.int32)[kept], np.array(self.name, dtype=np.int32)[kept]
        order = np.lexsort((-end, start, thread))
        annotation = np.array(self.tag, dtype=np.bool_)[kept][order]
        return HostSpans(thread[order], start[order], end[order], name[order], annotation, tuple(self.names))


def median_start(spans: Iterable[SpanArrays]) -> float:
    """The median start."""
    starts = np.concatenate([each.starts() for each in spans])
    return float(np.median(starts)) if len(starts) else 0.0
