"""When passes of encoders run beside the LLM's: one after another on a stream of their own on each rank, each from the
slot in front of which it begins until the slots since then have exchanged for as long as it computes.

A pass goes through the stages of its encoder, whose streams are apart. Forwards are due when the LLM reads, backwards
are there when it has returned gradients. Those forwards that cannot be done in time run in front of everything;
backwards for which no slot is left, behind.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from planner.strategies.bubbles.encoder_passes import EncoderPass, GapProblem

# early: forwards as soon as the stream is free. late: backwards first, and forwards when they have to; their outputs
# and what they keep are held for as short as can be.
Policy = Literal["early", "late"]
POLICIES: tuple[Policy, ...] = ("early", "late")
Starts = list[int]  # slots in front of which a pass begins, stage by stage in the order in which it goes through them


class GapSchedule(NamedTuple):
    """Forwards in front, passes with the slots in front of which they begin, and backwards behind."""

    front: tuple[EncoderPass, ...]
    beside: tuple[tuple[EncoderPass, tuple[int, ...]], ...]
    behind: tuple[EncoderPass, ...]

    @property
    def with_last_behind(self) -> "GapSchedule":
        """The same with the last backward beside others behind, where exchanges once a step may leave it more room."""
        if not self.beside or self.beside[-1][0].phase != "B":
            return self
        return GapSchedule(self.front, self.beside[:-1], (self.beside[-1][0], *self.behind))


class GapStream:
    """Schedules of the passes of a problem."""

    def __init__(self, problem: GapProblem) -> None:
        self.slots = len(problem.slots)
        self.forwards = [each for each in problem.passes if each.phase == "F"]
        self.backwards = [each for each in problem.passes if each.phase == "B"]
        self.stages = max((each.stages for each in problem.passes), default=1)
        self.before = np.cumsum([0.0, *(slot.exchanged for slot in problem.slots)])  # seconds exchanged by then

    @property
    def colocated(self) -> GapSchedule:
        """All forwards in front, and all backwards behind."""
        return GapSchedule(tuple(self.forwards), (), tuple(self.backwards))

    def with_fewest_in_front(self, policy: Policy) -> GapSchedule:
        """The schedule with as few forwards in front as can be."""
        each = (self.schedule(policy, front) for front in range(len(self.forwards) + 1))
        return next(found for found in each if found)

    def schedule(self, policy: Policy, front: int) -> GapSchedule | None:
        """The schedule with so many forwards in front; None where others would be late."""
        forwards, backwards = self.forwards[front:], [*self.backwards]
        beside: list[tuple[EncoderPass, tuple[int, ...]]] = []
        latest = self.latest_starts(forwards)
        free = [0] * self.stages  # by stage, the slot from which on its stream is
        while forwards or backwards:
            back = self.starts(backwards[0], free) if backwards else [self.slots]
            forward, due = bool(forwards), latest[-len(forwards)] if forwards else []
            if forward and policy == "late" and back[-1] < self.slots:
                forward = self.ends(back, backwards[0])[-1] > due[0]
            one = forwards.pop(0) if forward else backwards[0]
            starts = self.starts(one, free) if forward else back
            if forward and any(start > last for start, last in zip(starts, due, strict=True)):
                return None
            if not forward and back[-1] >= self.slots:
                break
            if forward and policy == "late":
                starts = [max(each) for each in zip(starts, due, strict=True)]
            elif not forward:
                backwards.pop(0)
            beside.append((one, tuple(starts)))
            for stage, end in zip(one.route, self.ends(starts, one), strict=True):
                free[stage] = end
        return GapSchedule(tuple(self.forwards[:front]), tuple(beside), tuple(backwards))

    def starts(self, one: EncoderPass, free: Sequence[int]) -> Starts:
        """Where a pass begins at the earliest."""
        found, now = Starts(), one.begin
        for stage in one.route:
            found.append(max(now, free[stage]))
            now = self.end(found[-1], one)
        return found

    def ends(self, starts: Starts, one: EncoderPass) -> Starts:
        """The slots in front of which a pass has ended, stage by stage."""
        return [self.end(start, one) for start in starts]

    def end(self, start: int, one: EncoderPass) -> int:
        """The slot in front of which a pass has ended on a stage; behind the last if it has not."""
        return min(self.slots, int(np.searchsorted(self.before, self.before[start] + one.computed)))

    def latest_starts(self, forwards: Sequence[EncoderPass]) -> list[Starts]:
        """The slots in front of which forwards have to begin, at the latest; below 0: they cannot be in time."""
        found, next_ones = list[Starts](), [self.slots] * self.stages
        for one in reversed(forwards):
            starts, end = Starts(), one.end
            for stage in reversed(one.route):
                end = min(end, next_ones[stage])
                needed = self.before[max(0, end)] - one.computed
                end = int(np.searchsorted(self.before, needed, side="right")) - 1 if end > 0 else -1
                next_ones[stage] = end
                starts.append(end)
            found.append(starts[::-1])
        return found[::-1]
