"""Host threads cut into segments: a segment ends where its thread launches, waits for or wakes something.

A segment is one activity of the event clock. Its own seconds run from the latest end of what it had to wait for, as
measured (the previous segment of the thread and whatever else it awaits), to its end. Gaps between operators are host
time. Where a synchronising call waits for nothing that was found, its time beyond the median of other such calls is
`unseen`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Kind = Literal["threads", "launch", "synchronise", "inter-stream", "unseen"]
KINDS: tuple[Kind, ...] = ("threads", "launch", "synchronise", "inter-stream", "unseen")


@dataclass(eq=False, slots=True)
class Piece:
    """A stretch of a host thread up to `end`; times in seconds."""

    thread: int
    end: float
    start: float = 0.0
    seconds: float = 0.0
    unseen: float = 0.0  # further seconds of a call that waited for nothing that was found
    number: int = -1
    unmatched: bool = False  # ends with such a call
    ops: tuple[int, ...] = ()  # device operations that it awaits
    markers: tuple[
        tuple[int, int], ...
    ] = ()  # streams that it awaits, each with the operation that was last on it then
    pieces: "tuple[Piece, ...]" = ()  # segments of other threads that it awaits

    @property
    def synchronises(self) -> bool:
        """Whether it waits for the device."""
        return bool(self.ops or self.markers)


class Threads:
    """Collects the segments of all threads in any order."""

    def __init__(self, count: int) -> None:
        self.of: list[list[Piece]] = [[] for _ in range(count)]

    def cut(self, thread: int, time: float) -> Piece:
        """Add a segment that ends at `time` seconds; of those that end together, the first one cut comes first."""
        segment = Piece(thread, time)
        self.of[thread].append(segment)
        return segment

    def done(self, op_ends: Sequence[float]) -> list[Piece]:
        """All segments thread by thread, with their own seconds."""
        found: list[Piece] = []
        for segments in self.of:
            segments.sort(key=lambda segment: segment.end)
            before = 0.0
            for segment in segments:
                segment.start = before
                awaited = [op_ends[op] for op in segment.ops]
                awaited += [op_ends[op] for _, op in segment.markers]
                awaited += [other.end for other in segment.pieces]
                segment.seconds = max(0.0, segment.end - max(before, *awaited, before))
                segment.number = len(found)
                before = segment.end
                found.append(segment)
            segments.clear()
        set_apart(found)
        return found


def set_apart(segments: Sequence[Piece]) -> None:
    """Move to `unseen` what unmatched calls take beyond the median of matched ones."""
    unmatched = [segment for segment in segments if segment.unmatched]
    if not unmatched:
        return
    matched = [segment.seconds for segment in segments if segment.synchronises]
    usual = median(matched) if matched else 0.0
    for segment in unmatched:
        segment.unseen = max(0.0, segment.seconds - usual)
        segment.seconds -= segment.unseen
