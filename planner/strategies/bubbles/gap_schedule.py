"""When passes of encoders run beside the LLM's: one after another on a stream of their own, each from the slot in front
of which it begins until the slots since then have exchanged for as long as it computes.

Forwards are due when the LLM reads, backwards are there when it has returned gradients. Those forwards that cannot be
done in time run in front of everything; backwards for which no slot is left, or less than there is behind, behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from planner.strategies.bubbles.encoder_passes import EncoderPass, GapProblem

# early: forwards as soon as the stream is free. late: backwards first, and forwards when they have to; their outputs
# and what they keep are held for as short as can be.
Policy = Literal["early", "late"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


@dataclass(frozen=True, slots=True)
class GapSchedule:
    """Forwards in front, passes with the slot in front of which each begins, and backwards behind."""

    front: tuple[EncoderPass, ...]
    beside: tuple[tuple[EncoderPass, int], ...]
    behind: tuple[EncoderPass, ...]


class GapStream:
    """Schedules of the passes of a problem."""

    def __init__(self, problem: GapProblem) -> None:
        self.slots, self.once = len(problem.slots), problem.once
        self.forwards = [each for each in problem.passes if each.phase == "F"]
        self.backwards = [each for each in problem.passes if each.phase == "B"]
        self.before = np.cumsum([0.0, *(slot.exchanged for slot in problem.slots)])  # seconds exchanged by then

    def schedule(self, policy: Policy, front: int) -> GapSchedule | None:
        """The schedule with so many forwards in front; None where others would be late."""
        forwards, backwards = self.forwards[front:], [*self.backwards]
        latest, beside, now = self.latest_starts(forwards), list[tuple[EncoderPass, int]](), 0
        while forwards or (backwards and max(now, backwards[0].begin) < self.slots):
            back = max(now, backwards[0].begin) if backwards else self.slots
            last = latest[-len(forwards)] if forwards else self.slots
            forward = bool(forwards) and (
                policy == "early" or back >= self.slots or self.end(back, backwards[0]) > last
            )
            start = back if not forward else now if policy == "early" else max(now, last)
            if forward and start > last:
                return None
            one = forwards.pop(0) if forward else backwards.pop(0)
            beside.append((one, start))
            now = self.end(start, one)
        if beside and beside[-1][0].phase == "B" and self.hides_more_behind(*beside[-1], backwards):
            backwards.insert(0, beside.pop()[0])
        return GapSchedule(tuple(self.forwards[:front]), tuple(beside), tuple(backwards))

    def hides_more_behind(self, last: EncoderPass, start: int, behind: Sequence[EncoderPass]) -> bool:
        """Whether what the LLM exchanges once a step leaves more room for the last backward than the slots do."""
        room = self.once - sum(each.computed for each in behind)
        return bool(self.before[-1] - self.before[start] < min(last.computed, room))

    @property
    def colocated(self) -> GapSchedule:
        """All forwards in front, and all backwards behind."""
        return GapSchedule(tuple(self.forwards), (), tuple(self.backwards))

    def with_fewest_in_front(self, policy: Policy) -> GapSchedule:
        """The schedule with as few forwards in front as can be."""
        each = (self.schedule(policy, front) for front in range(len(self.forwards) + 1))
        return next(found for found in each if found)

    def end(self, start: int, one: EncoderPass) -> int:
        """The slot in front of which a pass has ended that began in front of another; behind the last if it has not."""
        return min(self.slots, int(np.searchsorted(self.before, self.before[start] + one.computed)))

    def latest_starts(self, forwards: Sequence[EncoderPass]) -> list[int]:
        """The slots in front of which forwards have to begin, at the latest; below 0: they cannot be in time."""
        found, end = list[int](), self.slots
        for one in reversed(forwards):
            end = min(end, one.end)
            needed = self.before[max(0, end)] - one.computed
            end = int(np.searchsorted(self.before, needed, side="right")) - 1 if end > 0 else -1
            found.append(end)
        return found[::-1]
