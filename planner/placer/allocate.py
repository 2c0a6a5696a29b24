"""Devices for works whose items can be divided: each becomes one piece, or two of different widths."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from random import Random

from planner.placer.list_schedule import PieceGraph
from planner.placer.malleable import ROUNDING, SpeedEnvelope, longest_ends, malleable_seconds
from planner.placer.pieces import Lanes, Mode, Piece
from planner.placer.schedule_search import ScheduleSearch, allotments

EFFORT = 100_000  # pieces placed
Part = tuple[int, int]  # width and items; two of each work, of which one may have no items
ALLOTTED = 1.3  # times the malleable optimum of its level, in which at most a whole work ends in a start
WIDTH_SHARE, ITEMS_SHARE = 0.45, 0.4  # shares of the moves; the others swap the two pieces of a work
WIDTH_STEPS = (-3, -2, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 2, 3)  # to a wider or narrower width; 0: to any


@dataclass(frozen=True, slots=True)
class Work:
    """Items that pass a module, all at once or some after others."""

    name: str
    items: int
    seconds: Callable[[int, int], float]  # of a width and a number of items
    widths: tuple[int, ...]  # numbers of lanes, rising
    after: Mapping[str, float] = field(default_factory=dict)  # works that end before → seconds from then to its start

    def mode(self, width: int, items: int) -> Mode:
        return Mode(self.seconds(width, items), width)

    def speeds(self, devices: int) -> SpeedEnvelope:
        """The envelope of its speeds: at each width, with the number of items that is quickest for its size."""
        return SpeedEnvelope.of(
            (width, max(items / self.items / self.seconds(width, items) for items in range(1, self.items + 1)))
            for width in self.widths
            if width <= devices
        )


@dataclass(frozen=True, slots=True)
class Allocation:
    """Works and how fast they can be on so many devices; whoever asks twice computes envelopes once."""

    works: tuple[Work, ...]
    devices: int
    speeds: dict[str, SpeedEnvelope]
    levels: dict[str, float]  # of each work, the number of its level of precedences
    optima: dict[float, float]  # of each level, the malleable optimum

    @classmethod
    def of(cls, works: Sequence[Work], devices: int) -> "Allocation":
        speeds = {work.name: work.speeds(devices) for work in works}
        levels = longest_ends({w.name: dict.fromkeys(w.after, 0.0) for w in works}, dict.fromkeys(speeds, 1.0))
        optima = {
            level: malleable_seconds([speeds[name] for name in speeds if levels[name] == level], devices)
            for level in {*levels.values()}
        }
        return cls(tuple(works), devices, speeds, levels, optima)

    @property
    def bound(self) -> float:
        """As `placement_bound`, of placements with any number of pieces; those of one work do not overlap."""
        quickest = {name: each.least_seconds for name, each in self.speeds.items()}
        path = longest_ends({work.name: work.after for work in self.works}, quickest)
        return max(0.0, malleable_seconds([*self.speeds.values()], self.devices), *path.values())

    @property
    def seconds_of_levels(self) -> float:
        """The malleable optima of all levels, one after the other: Spindle's figure, and no bound on graphs."""
        return sum(self.optima.values())

    def fluid(self, every: int) -> Iterator[Part]:
        """At each level's optimum, of each work its two neighbouring widths, with its items by what each gets done.

        One of `every` so many works begins with the narrow one.
        """
        for number, work in enumerate(self.works, 1):
            speeds = self.speeds[work.name]
            upper, part = speeds.between(1 / self.optima[self.levels[work.name]])
            wide, narrow = int(speeds.widths[upper]), int(speeds.widths[upper - 1])
            done, rest = part * speeds.speeds[upper], (1 - part) * speeds.speeds[upper - 1]
            items = round(work.items * done / (done + rest))
            parts = (wide, items), (narrow or wide, work.items - items)
            yield from parts if number % every else parts[::-1]


def allocate(works: Sequence[Work], lanes: Lanes, effort: int = EFFORT) -> tuple[Piece, ...]:
    """Pieces of one mode each, in the order of their starts, none if none fits; `effort`: pieces placed by the search.

    Starts are the malleable optimum, where a work has a real width and so becomes two pieces of its neighbours, one
    after the other, and canonical allotments of whole works. Moves change widths, shift items between the two pieces of
    a work, and change the list. `place` on these lanes finds this placement, or a better one.
    """
    allocation = Allocation.of(works, lanes.count)
    if allocation.bound == inf:
        return ()
    widths = [[width for width in work.widths if width <= lanes.count] for work in works]
    slots = [piece for work in works for piece in slots_of(work)]

    @cache
    def mode_of(index: int, part: Part) -> Mode | None:
        return works[index // 2].mode(*part) if part[1] else None

    search: ScheduleSearch[Part] = ScheduleSearch(
        PieceGraph.of(slots, lanes), mode_of, lambda parts, draws: changed(parts, widths, draws), allocation.bound
    )
    starts = [search.longest_first(tuple(allocation.fluid(every))) for every in (1, 2, 3, 4)]
    options = [[work.mode(width, work.items) for width in each] for work, each in zip(works, widths, strict=True)]
    scales = [allocation.optima[allocation.levels[work.name]] for work in works]
    for chosen in allotments(options, scales, 1 - ROUNDING, ALLOTTED):
        whole = [(work.items, each[at]) for work, each, at in zip(works, widths, chosen, strict=True)]
        starts.append(search.longest_first(tuple((width, n) for items, width in whole for n in (items, 0))))
    best = search.race(starts, effort // max(1, len(slots)))
    made = search.schedule(best)
    if made is None:
        return ()
    placed = sorted((made.placed(at) for at, (_, items) in enumerate(best[1]) if items), key=lambda each: each.start)
    items = {slot.name: part[1] for slot, part in zip(slots, best[1], strict=True)}
    return tuple(
        replace(
            each.piece,
            modes=(each.mode,),
            after={name: lag for name, lag in each.piece.after.items() if items[name]},
            near=tuple(name for name in each.piece.near if items[name]),
            items=items[each.piece.name],
        )
        for each in placed
    )


def slots_of(work: Work) -> Iterator[Piece]:
    """The two pieces that a work may become, the second after the first."""
    after = {f"{name}/{slot}": lag for name, lag in work.after.items() for slot in (0, 1)}
    first = f"{work.name}/0"
    yield Piece(first, (), after, work=work.name)
    yield Piece(f"{work.name}/1", (), {**after, first: 0.0}, near=(first,), work=work.name)


def changed(parts: tuple[Part, ...], widths: Sequence[Sequence[int]], draws: Random) -> tuple[Part, ...]:
    """Parts of which one is wider or narrower, gives items to the other of its work, or stands in the other's place."""
    after, index, kind = [*parts], int(draws.random() * len(parts)), draws.random()
    (width, items), (other_width, others) = parts[index], parts[index ^ 1]
    if kind < WIDTH_SHARE:
        choice = widths[index // 2]
        step = WIDTH_STEPS[int(draws.random() * len(WIDTH_STEPS))]
        at = min(max(choice.index(width) + step, 0), len(choice) - 1) if step else int(draws.random() * len(choice))
        after[index] = choice[at], items
    elif kind < WIDTH_SHARE + ITEMS_SHARE:
        amounts = (1, width, other_width, max(1, items // 4), items)
        moved = min(items, amounts[int(draws.random() * len(amounts))])
        after[index], after[index ^ 1] = (width, items - moved), (other_width, others + moved)
    else:
        after[index], after[index ^ 1] = parts[index ^ 1], parts[index]
    return tuple(after)
