"""What lanes hold over time, in segments within which nothing changes.

Lanes are bits of an integer. Those of a segment that hold the same amount stand together, so that a question to equal
lanes costs the same for four as for a thousand.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from math import inf

INSTANT = 1e-12  # seconds: what is less apart is at once
ROUNDING = 1e-9  # of the capacity, by which sums of amounts may exceed it


@dataclass(slots=True)
class LaneTimeline:
    """One amount, of shares or of bytes, on each lane."""

    capacity: float
    starts: list[float] = field(default_factory=lambda: [0.0])  # of segments; the last has no end
    held: list[dict[float, int]] = field(default_factory=list)  # of each segment: amount → the lanes that hold it

    def copy(self) -> "LaneTimeline":
        return LaneTimeline(self.capacity, [*self.starts], [*self.held])

    def add(self, start: float, end: float, lanes: int, amount: float) -> None:
        """Let lanes hold more from start to end; a negative amount is given back."""
        first = self._cut(start)
        last = self._cut(end) if end < inf else len(self.starts)
        for at in range(first, last):
            after: dict[float, int] = {}
            for level, those in self.held[at].items():
                for above, some in ((level, those & ~lanes), (level + amount, those & lanes)):
                    if some:
                        after[above] = after.get(above, 0) | some
            self.held[at] = after

    def _cut(self, time: float) -> int:
        """The segment that starts at this time, made where there is none."""
        at = bisect_left(self.starts, time - INSTANT)
        if at == len(self.starts) or self.starts[at] > time + INSTANT:
            self.starts.insert(at, time)
            self.held.insert(at, self.held[at - 1])
        return at

    def room(self, amount: float) -> list[int]:
        """The lanes that could hold so much more, of each segment."""
        limit = self.capacity * (1 + ROUNDING) - amount
        rooms = []
        for segment in self.held:
            room = 0
            for level, lanes in segment.items():
                if level <= limit:
                    room |= lanes
            rooms.append(room)
        return rooms

    def over(self, rooms: list[int], start: float, end: float) -> int:
        """The lanes that are among those of every segment from start to end."""
        at = bisect_right(self.starts, start + INSTANT) - 1
        lanes, until = rooms[at], end - INSTANT
        for following in range(at + 1, len(rooms)):
            if self.starts[following] >= until or not lanes:
                break
            lanes &= rooms[following]
        return lanes

    def fullest_first(self, time: float) -> list[int]:
        """The lanes at a time, those that hold equally much together."""
        segment = self.held[bisect_right(self.starts, time + INSTANT) - 1]
        return [segment[level] for level in sorted(segment, reverse=True)]
