"""A search by moves, of which slightly worse ones are followed too: threshold accepting."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Generic, TypeVar

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class ThresholdAccepting(Generic[State]):
    """Threshold accepting (Dueck and Scheuer, Journal of Computational Physics 90, 1990)."""

    moved: Callable[[State, Random], State | None]  # a state after one move; None: it moves nothing, or cannot
    values: Callable[[State], tuple[float, float]]  # what is minimised, and by what moves are judged
    tolerance: float  # relative increase of the latter that is accepted at first, ever less later
    enough: float = -inf  # of the former, at which the search ends

    def best(self, start: State, moves: int, draws: Random) -> State:
        """The best state found by so many moves; the start where none is better."""
        current = best = start
        least, guide = self.values(start)
        for number in range(moves):
            if least <= self.enough:
                break
            changed = self.moved(current, draws)
            if changed is None:
                continue
            value, judged = self.values(changed)
            if judged <= guide * (1 + self.tolerance * draws.random() * (1 - number / moves)):
                current, guide = changed, judged
            if value < least:
                best, least = changed, value
        return best
