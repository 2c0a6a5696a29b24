"""Better lists and choices, by moves: a move changes the choice of a piece or its place in the list.

Several starts race: after each round the better half goes on. Work is counted in schedules, draws are the same always.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Generic, TypeVar

from planner.moves import ThresholdAccepting
from planner.placer.list_schedule import ListSchedule, PieceGraph
from planner.placer.malleable import longest_ends
from planner.placer.pieces import Mode

Choice = TypeVar("Choice")
State = tuple[tuple[int, ...], tuple[Choice, ...]]  # the list of pieces, by number, and what is chosen for each
RUNNERS = 8  # starts that race
TOLERANCE = 0.02  # relative increase that is accepted at the start
MEAN_END_WEIGHT = 0.005  # weight of the mean end, beside that of the last one
LIST_SHARE = 0.25  # share of the moves that change the list
WITHIN = 1e-9  # relative: as good as the bound
ALLOTMENTS = 200  # at most, that are tried as starts


@dataclass(frozen=True, slots=True)
class ScheduleSearch(Generic[Choice]):
    """What is searched: lists of a graph's pieces, and choices that each stand for a mode, or for none."""

    graph: PieceGraph
    mode_of: Callable[[int, Choice], Mode | None]
    change: Callable[[tuple[Choice, ...], Random], tuple[Choice, ...]]
    bound: float

    def schedule(self, state: State[Choice]) -> ListSchedule | None:
        order, choices = state
        return self.graph.scheduled(order, [self.mode_of(index, choice) for index, choice in enumerate(choices)])

    def seconds(self, state: State[Choice]) -> tuple[float, float]:
        """The last end, and the same with a little of the mean end, which judges moves; infinite if none fits."""
        made = self.schedule(state)
        if made is None:
            return inf, inf
        ends = [spot.end for spot in made.spots.values()] or [0.0]
        return max(ends), max(ends) + MEAN_END_WEIGHT * sum(ends) / len(ends)

    def longest_first(self, choices: tuple[Choice, ...]) -> State[Choice]:
        """The list by the seconds from a piece's start to the end of all that follow it."""
        pieces = self.graph.pieces
        modes = [self.mode_of(index, choice) for index, choice in enumerate(choices)]
        seconds = {piece.name: mode.seconds if mode else 0.0 for piece, mode in zip(pieces, modes, strict=True)}
        followed = {
            piece.name: {pieces[each].name: pieces[each].after[piece.name] for each in followers}
            for piece, followers in zip(pieces, self.graph.followers, strict=True)
        }
        tails = longest_ends(followed, seconds)
        return tuple(sorted(range(len(pieces)), key=lambda index: -tails[pieces[index].name])), choices

    def race(self, starts: Iterable[State[Choice]], schedules: int) -> State[Choice]:
        """The best state found by so many schedules and those of the starts, which come first where they are equal."""
        runners = sorted(dict.fromkeys(starts), key=self.seconds)[:RUNNERS]
        rounds = len(runners).bit_length()
        search = ThresholdAccepting(self.moved, self.seconds, TOLERANCE, self.bound * (1 + WITHIN))
        for number in range(rounds):
            share = schedules // rounds // len(runners)
            runners = [search.best(each, share, Random(number)) for each in runners]
            runners = sorted(runners, key=self.seconds)[: max(1, len(runners) // 2)]
        return runners[0]

    def moved(self, state: State[Choice], draws: Random) -> State[Choice] | None:
        order, choices = state
        if draws.random() >= LIST_SHARE:
            choices = self.change(choices, draws)
        else:
            moved = [*order]
            piece = moved.pop(int(draws.random() * len(order)))
            moved.insert(int(draws.random() * len(order)), piece)
            order = tuple(moved)
        return None if (order, choices) == state else (order, choices)


def allotments(
    options: Sequence[Sequence[Mode]], scales: Sequence[float], least: float = 0.0, most: float = inf
) -> list[tuple[int, ...]]:
    """Canonical allotments: for some seconds, of each piece the mode of least lane-seconds that takes no longer.

    Where none takes so little, the quickest. Some number of seconds leads within a factor of 2 of the optimum of
    independent pieces (Turek, Wolf and Yu, SPAA 1992). Seconds are multiples of each piece's scale, from `least` to
    `most`; besides, all at their quickest.
    """
    relative = [[mode.seconds / scale for mode in modes] for modes, scale in zip(options, scales, strict=True)]
    limits = sorted({0.0, *(each for seconds in relative for each in seconds if least <= each <= most)})

    def chosen(modes: Sequence[Mode], seconds: Sequence[float], limit: float) -> int:
        return min(range(len(modes)), key=lambda at: (max(seconds[at], limit), modes[at].lane_seconds))

    return [
        tuple(chosen(modes, seconds, limit) for modes, seconds in zip(options, relative, strict=True))
        for limit in limits[:: 1 + len(limits) // ALLOTMENTS]
    ]
