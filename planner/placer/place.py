"""Where and when pieces run, and in which of their modes, so that the last ends early."""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import factorial, prod
from random import Random

from planner.placer.list_schedule import PieceGraph
from planner.placer.malleable import placement_bound
from planner.placer.pieces import Lanes, Piece, Placement
from planner.placer.schedule_search import ScheduleSearch, State, allotments

EFFORT = 100_000  # pieces placed


def place(pieces: Sequence[Piece], lanes: Lanes, effort: int = EFFORT) -> Placement | None:
    """The best placement found, None where none was; `effort`: pieces that the search may place.

    All lists with all modes are tried if they are few, which finds the least makespan where list schedules do. Else
    moves improve them; the pieces as they stand, each in its first mode, are among the starts.
    """
    search: ScheduleSearch[int] = ScheduleSearch(
        PieceGraph.of(pieces, lanes),
        lambda index, choice: pieces[index].modes[choice],
        lambda choices, draws: other_mode(pieces, choices, draws),
        placement_bound(pieces, lanes),
    )
    counts = [len(piece.modes) for piece in pieces]
    schedules = effort // max(1, len(pieces))
    if factorial(len(pieces)) * prod(counts) <= schedules:
        best = min(every_state(counts), key=search.seconds)
    else:
        starts = [(tuple(range(len(pieces))), (0,) * len(pieces))]
        options = [piece.modes for piece in pieces]
        starts += [search.longest_first(choices) for choices in allotments(options, [1.0] * len(options))]
        best = search.race(starts, schedules)
    made = search.schedule(best)
    return made.placement() if made else None


def every_state(counts: Sequence[int]) -> Iterator[State[int]]:
    return ((order, each) for each in product(*map(range, counts)) for order in permutations(range(len(counts))))


def other_mode(pieces: Sequence[Piece], choices: tuple[int, ...], draws: Random) -> tuple[int, ...]:
    index = int(draws.random() * len(pieces))
    return (*choices[:index], int(draws.random() * len(pieces[index].modes)), *choices[index + 1 :])
