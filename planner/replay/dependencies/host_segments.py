"""Host threads cut into segments: a segment ends where its thread launches, waits for or wakes something.

A segment is one activity of the event clock. Its own seconds run from the latest end of what it had to wait for, as
measured (the previous segment of the thread and whatever else it awaits), to its end. Gaps between operators are host
time as far as a program's own instructions may take them; what is longer is `unseen`, as nothing in the trace says
whether the thread worked or waited. So is the time of a synchronising call that waits for nothing that was found,
beyond the median of other such calls.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, get_args

from planner.units import US

DependencyKind = Literal["threads", "launch", "synchronise", "inter-stream", "hidden", "unseen"]
DEPENDENCY_KINDS: tuple[DependencyKind, ...] = get_args(DependencyKind)


MAX_OWN_GAP = 100 * US  # between two operators, that a program's own instructions are taken to need at most


@dataclass(eq=False, slots=True)
class HostSegment:
    """A stretch of a host thread up to `end`; times in seconds."""

    thread: int
    end: float
    start: float = 0.0
    seconds: float = 0.0
    unseen: float = 0.0  # further seconds of a call that waited for nothing that was found
    number: int = -1
    unmatched: bool = False  # ends with such a call
    awaited_ops: tuple[int, ...] = ()  # device operations that it awaits
    awaited_streams: tuple[tuple[int, int], ...] = ()  # that it awaits, each with its last operation then
    awaited_segments: "tuple[HostSegment, ...]" = ()  # segments of other threads that it awaits

    @property
    def synchronises(self) -> bool:
        """Whether it waits for the device."""
        return bool(self.awaited_ops or self.awaited_streams)


class HostThreads:
    """Collects the segments of all threads in any order."""

    def __init__(self, count: int) -> None:
        self.by_thread: list[list[HostSegment]] = [[] for _ in range(count)]

    def cut(self, thread: int, time: float) -> HostSegment:
        """Add a segment that ends at `time` seconds; of those that end together, the first one cut comes first."""
        segment = HostSegment(thread, time)
        self.by_thread[thread].append(segment)
        return segment

    def finish(self, op_ends: Sequence[float], idle: "Sequence[Sequence[tuple[float, float]]]") -> list[HostSegment]:
        """All segments thread by thread, with their own seconds; `idle`: long gaps of each thread, in order."""
        found: list[HostSegment] = []
        for segments in self.by_thread:
            segments.sort(key=lambda segment: segment.end)
            before = 0.0
            for segment in segments:
                segment.start = before
                awaited = [op_ends[op] for op in segment.awaited_ops]
                awaited += [op_ends[op] for _, op in segment.awaited_streams]
                awaited += [other.end for other in segment.awaited_segments]
                segment.seconds = max(0.0, segment.end - max(before, *awaited, before))
                segment.unseen = unseen_in_gaps(idle[segment.thread], segment.end - segment.seconds, segment.end)
                segment.seconds -= segment.unseen
                segment.number = len(found)
                before = segment.end
                found.append(segment)
            segments.clear()
        split_unmatched(found)
        return found


def split_unmatched(segments: Sequence[HostSegment]) -> None:
    """Move to `unseen` what unmatched calls take beyond the median of matched ones."""
    unmatched = [segment for segment in segments if segment.unmatched]
    if not unmatched:
        return
    matched = [segment.seconds for segment in segments if segment.synchronises]
    usual = median(matched) if matched else 0.0
    for segment in unmatched:
        unseen = max(0.0, segment.seconds - usual)
        segment.unseen += unseen
        segment.seconds -= unseen


def unseen_in_gaps(gaps: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Seconds of gaps of a thread within a time span, beyond what the program's own time in each may be."""
    unseen = 0.0
    at = max(0, bisect_right(gaps, (begin, float("inf"))) - 1)
    while at < len(gaps) and gaps[at][0] < end:
        unseen += max(0.0, min(end, gaps[at][1]) - max(begin, gaps[at][0]) - MAX_OWN_GAP)
        at += 1
    return unseen
