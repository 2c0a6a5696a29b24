"""List scheduling on lanes: piece after piece, in the order of a list, each at the earliest time with room for it.

The serial schedule generation scheme for projects with limited resources (Kolisch, European Journal of Operational
Research 90, 1996): a piece may go into a gap that earlier ones left. Where nodes do not bind, some list gives the least
makespan of all placements. `orders/list_scheduling.py` is another thing: it lets stages of one pipeline choose among F,
I and W by a rule as time passes; here nothing is known of what pieces do, and a list decides.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from planner.placer.pieces import Lanes, Mode, Piece, Placed, Placement

INSTANT = 1e-12  # seconds: what is less apart is at once


def lowest(lanes: int, count: int) -> int:
    """The first so many of some lanes."""
    if lanes.bit_count() <= count:
        return lanes
    below, above = 0, lanes.bit_length()  # of the lanes below, there are at most so many
    while above - below > 1:
        middle = (below + above) // 2
        if (lanes & ((1 << middle) - 1)).bit_count() <= count:
            below = middle
        else:
            above = middle
    return lanes & ((1 << below) - 1)


def numbers(lanes: int) -> tuple[int, ...]:
    return tuple(lane for lane in range(lanes.bit_length()) if lanes >> lane & 1)


@dataclass(slots=True)
class BusyLanes:
    """Which lanes are busy over time, in segments within which nothing changes: bits of an integer."""

    every: int
    starts: list[float] = field(default_factory=lambda: [0.0])  # of segments; the last has no end
    busy: list[int] = field(default_factory=lambda: [0])  # of each segment

    def take(self, start: float, end: float, lanes: int) -> None:
        """Let lanes be busy from start to end."""
        first, last = self._cut(start), self._cut(end)
        for at in range(first, last):
            self.busy[at] |= lanes

    def _cut(self, time: float) -> int:
        """The segment that starts at this time, made where there is none."""
        at = bisect_left(self.starts, time - INSTANT)
        if at == len(self.starts) or self.starts[at] > time + INSTANT:
            self.starts.insert(at, time)
            self.busy.insert(at, self.busy[at - 1])
        return at

    def free(self, start: float, end: float) -> int:
        """The lanes that are free from start to end."""
        at = bisect_right(self.starts, start + INSTANT) - 1
        lanes, until = self.every & ~self.busy[at], end - INSTANT
        for following in range(at + 1, len(self.starts)):
            if self.starts[following] >= until or not lanes:
                break
            lanes &= ~self.busy[following]
        return lanes


@dataclass(slots=True)
class PieceGraph:
    """Pieces by number, with who follows whom, on lanes."""

    pieces: tuple[Piece, ...]
    every: int  # lane
    nodes: tuple[int, ...]  # the lanes of each
    after: list[list[tuple[int, float]]]
    followers: list[list[int]]
    near: list[list[int]]  # of each piece: those that it is near, or that are near it

    @classmethod
    def of(cls, pieces: Sequence[Piece], lanes: Lanes) -> "PieceGraph":
        number = {piece.name: index for index, piece in enumerate(pieces)}
        if len(number) < len(pieces):
            raise ValueError("two pieces have one name")
        every, size = (1 << lanes.count) - 1, lanes.per_node or lanes.count
        return cls(
            tuple(pieces),
            every,
            tuple(every & ((1 << size) - 1) << first for first in range(0, lanes.count, size)),
            [[(number[name], lag) for name, lag in piece.after.items()] for piece in pieces],
            [[index for index, other in enumerate(pieces) if piece.name in other.after] for piece in pieces],
            [[number[o.name] for o in pieces if piece.name in o.near or o.name in piece.near] for piece in pieces],
        )

    def scheduled(self, order: Sequence[int], modes: Sequence[Mode | None]) -> "ListSchedule | None":
        """Every piece in its place; those without a mode are left out. None where one is wider than there are lanes."""
        made = ListSchedule(self, modes, BusyLanes(self.every))
        return made if made.run(order) else None


class Spot(NamedTuple):
    """When and where a piece is; on no lanes if it is left out."""

    start: float
    end: float
    lanes: int


@dataclass(slots=True)
class ListSchedule:
    """Pieces in their places, and when lanes are busy."""

    graph: PieceGraph
    modes: Sequence[Mode | None]
    lanes: BusyLanes
    spots: dict[int, Spot] = field(default_factory=dict)

    def placement(self) -> Placement:
        placed = [self.placed(index) for index in self.spots if self.modes[index]]
        return Placement(tuple(sorted(placed, key=lambda each: each.start)))

    def placed(self, index: int) -> Placed:
        mode, (start, end, lanes) = self.modes[index], self.spots[index]
        assert mode is not None, "a piece that is left out is nowhere"
        numbers = tuple(lane for lane in range(lanes.bit_length()) if lanes >> lane & 1)
        return Placed(self.graph.pieces[index], mode, start, end, numbers)

    def run(self, order: Sequence[int]) -> bool:
        """Place all; False where one fits nowhere."""
        turn = {index: place for place, index in enumerate(order)}
        missing = [len(before) for before in self.graph.after]
        ready = [(turn[index], index) for index in order if not missing[index]]
        while ready:
            _, index = heappop(ready)
            if not self.put(index):
                return False
            for following in self.graph.followers[index]:
                missing[following] -= 1
                if not missing[following]:
                    heappush(ready, (turn[following], following))
        return True

    def put(self, index: int) -> bool:
        """Place a piece, if it fits anywhere."""
        mode = self.modes[index]
        ready = max((self.spots[before].end + lag for before, lag in self.graph.after[index]), default=0.0)
        if mode is None:
            self.spots[index] = Spot(ready, ready, 0)
            return True
        for start in (ready, *self.lanes.starts[bisect_right(self.lanes.starts, ready) :]):
            end = start + mode.seconds
            room = self.lanes.free(start, end)
            if room.bit_count() >= mode.width:
                lanes = self.chosen(room, mode.width, self.near(index))
                self.lanes.take(start, end, lanes)
                self.spots[index] = Spot(start, end, lanes)
                return True
        return False

    def chosen(self, room: int, width: int, near: int) -> int:
        """So many of the lanes with room: of one node where one has as many, near others.

        Of nodes that offer as many lanes near others, the one with least room is taken; a piece that needs several
        begins with those that offer most.
        """
        offers = [node & room for node in self.graph.nodes if node & room]
        whole = [offer for offer in offers if offer.bit_count() >= width]
        if whole:
            offers = [min(whole, key=lambda offer: (-min((offer & near).bit_count(), width), offer.bit_count()))]
        elif len(offers) > 1:
            offers.sort(key=lambda offer: (-(offer & near).bit_count(), -offer.bit_count()))
        lanes = 0
        for offer in offers:
            for some in (near, ~near):
                lanes |= lowest(offer & some, width - lanes.bit_count())
        return lanes

    def near(self, index: int) -> int:
        """The lanes that a piece would share."""
        lanes = 0
        for other in self.graph.near[index]:
            if other in self.spots and self.modes[other]:
                lanes |= self.spots[other].lanes
        return lanes
