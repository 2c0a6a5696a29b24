"""List scheduling on lanes: piece after piece, in the order of a list, each at the earliest time with room for it.

The serial schedule generation scheme for projects with limited resources (Kolisch, European Journal of Operational
Research 90, 1996): a piece may go into a gap that earlier ones left. Where seconds are constant, lanes are used whole
and memory and nodes do not bind, some list gives the least makespan of all placements. `orders/list_scheduling.py` is
another thing: it lets stages of one pipeline choose among F, I and W by a rule as time passes; here nothing is known of
what pieces do, and a list decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from planner.placer.lane_timeline import LaneTimeline
from planner.placer.pieces import Lanes, Mode, Piece, Placed, Placement, Pricing


def bits(lanes: Sequence[int]) -> int:
    return sum(1 << lane for lane in lanes)


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
class LaneClass:
    """Lanes of a class, and what they hold."""

    shares: LaneTimeline
    bytes: LaneTimeline
    nodes: tuple[int, ...]  # the lanes of each

    @classmethod
    def of(cls, lanes: Lanes) -> "LaneClass":
        every = (1 << lanes.count) - 1
        size = lanes.per_node or lanes.count
        nodes = tuple(every & ((1 << size) - 1) << first for first in range(0, lanes.count, size))
        made = cls(LaneTimeline(1.0, held=[{0.0: every}]), LaneTimeline(lanes.bytes, held=[{0.0: every}]), nodes)
        for each in lanes.taken:
            made.shares.add(each.start, each.end, bits(each.lanes), each.share)
            made.bytes.add(each.start, each.end, bits(each.lanes), each.bytes)
        return made

    def copy(self) -> "LaneClass":
        return LaneClass(self.shares.copy(), self.bytes.copy(), self.nodes)

    def chosen(self, room: int, width: int, near: int, start: float) -> int:
        """So many of the lanes with room: of one node where one has as many, near others, the fullest first.

        Of nodes that offer as many lanes near others, the one with least room is taken; a piece that needs several
        begins with those that offer most.
        """
        preferred = [level & side for side in (near, ~near) for level in self.shares.fullest_first(start)]
        offers = [node & room for node in self.nodes if node & room]
        whole = [offer for offer in offers if offer.bit_count() >= width]
        if whole:
            offers = [min(whole, key=lambda offer: (-min((offer & near).bit_count(), width), offer.bit_count()))]
        elif len(offers) > 1:
            offers.sort(key=lambda offer: (-(offer & near).bit_count(), -offer.bit_count()))
        lanes = 0
        for offer in offers:
            for some in preferred:
                lanes |= lowest(offer & some, width - lanes.bit_count())
        return lanes


@dataclass(slots=True)
class PieceGraph:
    """Pieces by number, with who follows whom, on lanes."""

    pieces: tuple[Piece, ...]
    classes: dict[str, LaneClass]
    pricing: Pricing | None
    after: list[list[tuple[int, float]]]
    followers: list[list[int]]
    frees: list[list[int]]  # of each piece: those whose bytes it frees
    near: list[list[int]]  # of each piece: those that it is near, or that are near it

    @classmethod
    def of(cls, pieces: Sequence[Piece], lanes: Sequence[Lanes], pricing: Pricing | None = None) -> "PieceGraph":
        number = {piece.name: index for index, piece in enumerate(pieces)}
        if len(number) < len(pieces):
            raise ValueError("two pieces have one name")
        return cls(
            tuple(pieces),
            {each.name: LaneClass.of(each) for each in lanes},
            pricing,
            [[(number[name], lag) for name, lag in piece.after.items()] for piece in pieces],
            [[index for index, other in enumerate(pieces) if piece.name in other.after] for piece in pieces],
            [[index for index, other in enumerate(pieces) if piece.name == other.freed_by] for piece in pieces],
            [[number[o.name] for o in pieces if piece.name in o.near or o.name in piece.near] for piece in pieces],
        )

    def scheduled(self, order: Sequence[int], modes: Sequence[Mode | None]) -> "ListSchedule | None":
        """Every piece in its place; those without a mode are left out. None where one fits nowhere."""
        made = ListSchedule(self, modes, {name: each.copy() for name, each in self.classes.items()})
        return made if made.run(order) else None


class Spot(NamedTuple):
    """When and where a piece is; on no lanes if it is left out."""

    start: float
    end: float
    lanes: int


@dataclass(slots=True)
class ListSchedule:
    """Pieces in their places, and what lanes then hold."""

    graph: PieceGraph
    modes: Sequence[Mode | None]
    classes: dict[str, LaneClass]
    spots: dict[int, Spot] = field(default_factory=dict)

    def placement(self) -> Placement:
        placed = [self.placed(index) for index in self.spots if self.modes[index]]
        return Placement(tuple(sorted(placed, key=lambda each: each.start)))

    def placed(self, index: int) -> Placed:
        mode, (start, end, lanes) = self.modes[index], self.spots[index]
        assert mode is not None, "a piece that is left out is nowhere"
        return Placed(self.graph.pieces[index], mode, start, end, numbers(lanes))

    def run(self, order: Sequence[int]) -> bool:
        """Place all; a piece that fits nowhere, since others hold bytes until later ones end, is tried again later."""
        turn = {index: place for place, index in enumerate(order)}
        missing = [len(before) for before in self.graph.after]
        ready = [(turn[index], index) for index in order if not missing[index]]
        waiting: list[tuple[int, int]] = []
        while ready:
            place, index = heappop(ready)
            if not self.put(index):
                waiting.append((place, index))
                continue
            for following in self.graph.followers[index]:
                missing[following] -= 1
                if not missing[following]:
                    heappush(ready, (turn[following], following))
            for each in waiting:
                heappush(ready, each)
            waiting.clear()
        return len(self.spots) == len(order)

    def put(self, index: int) -> bool:
        """Place a piece, if it fits anywhere."""
        piece, mode = self.graph.pieces[index], self.modes[index]
        ready = max((self.spots[before].end + lag for before, lag in self.graph.after[index]), default=0.0)
        if mode is None:
            self.spots[index] = Spot(ready, ready, 0)
            return True
        holds = piece.freed_by is not None and mode.bytes > 0
        found = self.earliest(piece, mode, ready, holds)
        if found is None:
            return False
        start, end, room = found
        there = self.classes[mode.on]
        lanes = there.chosen(room, mode.width, self.near(index, mode.on), start)
        there.shares.add(start, end, lanes, mode.share)
        if mode.bytes:
            there.bytes.add(start, inf if holds else end, lanes, mode.bytes)
        self.spots[index] = Spot(start, end, lanes)
        for other in self.graph.frees[index]:
            held = self.modes[other]
            if other in self.spots and held and held.bytes:
                self.classes[held.on].bytes.add(end, inf, self.spots[other].lanes, -held.bytes)
        return True

    def earliest(self, piece: Piece, mode: Mode, ready: float, holds: bool) -> Spot | None:
        """Start and end of a piece, and all lanes with room for it: where seconds are priced, the earliest end."""
        there, pricing, best = self.classes[mode.on], self.graph.pricing, None
        shares, held = there.shares, there.bytes
        among = -1 if isinstance(mode.ranks, int) else bits(mode.ranks)
        rooms, holding = shares.room(mode.share), held.room(mode.bytes) if mode.bytes else None
        for start in starts_from(ready, shares, held if mode.bytes else None):
            if best and (pricing is None or start >= best.end):
                break
            end = start + (pricing(piece, mode, start, self.beside(start)) if pricing else mode.seconds)
            room = among & shares.over(rooms, start, end)
            if holding:
                room &= held.over(holding, start, inf if holds else end)
            if room.bit_count() >= mode.width and (best is None or end < best.end):
                best = Spot(start, end, room)
        return best

    def beside(self, time: float) -> tuple[Placed, ...]:
        return tuple(self.placed(index) for index, spot in self.spots.items() if spot.start <= time < spot.end)

    def near(self, index: int, on: str) -> int:
        """The lanes that a piece would share."""
        lanes = 0
        for other in self.graph.near[index]:
            mode = self.modes[other]
            if other in self.spots and mode and mode.on == on:
                lanes |= self.spots[other].lanes
        return lanes


def starts_from(ready: float, *timelines: LaneTimeline | None) -> list[float]:
    """When a piece may start: as it is ready, or when what lanes hold changes later."""
    return [ready, *sorted({time for each in timelines if each for time in each.starts if time > ready})]
