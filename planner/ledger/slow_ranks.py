"""Ranks that hold up a run, and why, from what each took for its own work without waiting: by its last steps while it
lasts, by a written timeline thereafter.

Ranks may have different work, so what a kind of work usually takes is its prediction, times the ratio of measured to
predicted seconds that the other ranks have in it (their median; one suffices). What is not predicted, as the loader,
usually takes what it takes the others. The cause is named as in a recording (replay/timing/late_ranks.py).
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from planner.plan.task import LOADER, WORK_OF_PHASE, RankWork
from planner.replay.timing import LateCause, named_cause
from planner.simulate import Timeline
from planner.units import percent

if TYPE_CHECKING:
    from planner.runtime import Progress

LOG = logging.getLogger(__name__)
SLOWER = 0.1  # than others, from which a rank is slow: stragglers in MegaScale were (arXiv 2402.15627, section 5)
STEPS = 7  # last steps whose medians are compared: one slow step is none of a slow rank


class SlowRank(NamedTuple):
    """A rank whose own work takes longer than the others'."""

    rank: int
    ratio: float  # of its seconds to what is usual
    cause: LateCause

    @property
    def text(self) -> str:
        """In words."""
        return f"rank {self.rank} is slow: its own work takes {percent(self.ratio - 1)} longer; {self.cause.text}"


def work_of_ranks(timeline: Timeline) -> list[RankWork]:
    """Seconds of each rank's passes and updates in a timeline, by kind."""
    found: dict[int, RankWork] = {}
    for event in timeline.events:
        kind = WORK_OF_PHASE.get(event.phase)
        for rank in event.ranks if kind else ():
            own = found.setdefault(rank, {})
            own[kind or ""] = own.get(kind or "", 0.0) + event.seconds - event.comm
    return [found.get(timeline.representative_of(rank), {}) for rank in range(timeline.ranks)]


def usual_work(measured: Sequence[RankWork], expected: Sequence[RankWork], rank: int) -> RankWork:
    """What each kind of a rank's work would take if it were like the others'."""
    others = [other for other in range(len(measured)) if other != rank]
    usual = {}
    for kind, seconds in measured[rank].items():
        own = expected[rank].get(kind, 0.0)
        ratios = [measured[o].get(kind, 0.0) / expected[o][kind] for o in others if expected[o].get(kind)]
        alike = [measured[o][kind] for o in others if kind in measured[o] and not expected[o].get(kind)]
        usual[kind] = own * median(ratios) if own and ratios else median(alike) if alike and not own else seconds
    return usual


def most_for_work(measured: Sequence[RankWork], expected: Sequence[RankWork], rank: int) -> float:
    """The most seconds that others' make likely for a rank's work: a prediction may be wrong in how seconds grow with
    work, which is no power of it below 0 or above 2.
    """
    others = [other for other in range(len(measured)) if other != rank]
    time, work = (median(sum(each[other].values()) for other in others) for each in (measured, expected))
    more = sum(expected[rank].values()) / work if work else 1.0
    return time * max(1.0, more**2)


def slow_ranks(measured: Sequence[RankWork], expected: Sequence[RankWork]) -> list[SlowRank]:
    """Slow ranks, the slowest first, from the measured and predicted work of all."""
    found = []
    for rank, own in enumerate(measured if len(measured) > 1 else ()):
        usual = usual_work(measured, expected, rank)
        whole, delay = sum(usual.values()), sum(own.values()) - sum(usual.values())
        if delay > SLOWER * whole > 0 and sum(own.values()) > (1 + SLOWER) * most_for_work(measured, expected, rank):
            kinds = {kind: ("host" if kind == LOADER else "kernels", kind) for kind in own}
            excess = {kinds[kind]: seconds - usual[kind] for kind, seconds in own.items()}
            effect = {kind: seconds for kind, seconds in excess.items() if seconds > 0}
            cause = named_cause(effect, {kinds[kind]: seconds for kind, seconds in own.items()}, excess, delay)
            found.append(SlowRank(rank, 1 + delay / whole, cause))
    return sorted(found, key=lambda each: (-each.ratio, each.rank))


def usual_steps(steps: Sequence[Sequence[RankWork]]) -> list[RankWork]:
    """The median of some steps, by rank and kind."""
    ranks = [[step[rank] for step in steps] for rank in range(len(steps[0]))]
    return [
        {kind: median(each.get(kind, 0.0) for each in own) for kind in sorted({*own[0], *own[-1]})} for own in ranks
    ]


class ComparedRanks(NamedTuple):
    """The median step of each rank of a run: own work as measured, what is usual of it, and slow ranks."""

    work: list[RankWork]
    usual: list[RankWork]
    slow: list[SlowRank]


def compare_ranks(measured: Sequence[Sequence[RankWork]], expected: Sequence[Sequence[RankWork]]) -> ComparedRanks:
    """The ranks of a run; both (steps, ranks)."""
    if not measured:
        return ComparedRanks([], [], [])
    work, predicted = usual_steps(measured), usual_steps(expected)
    usual = [usual_work(work, predicted, rank) for rank in range(len(work))]
    return ComparedRanks(work, usual, slow_ranks(work, predicted))


class SlowRankWatch:
    """Says in the log which rank holds up a run, and why, when that begins and when it is another."""

    def __init__(self, predicted: Sequence[Timeline]) -> None:
        self.expected = [work_of_ranks(each) for each in predicted]
        self.steps: deque[tuple[Sequence[RankWork], Sequence[RankWork]]] = deque(maxlen=STEPS)
        self.named: set[tuple[int, str, str]] = set()

    def hearing(self, on_step: "Callable[[Progress], None]") -> "Callable[[Progress], None]":
        """What hears of each step, and then tells `on_step`."""

        def hear(step: "Progress") -> None:
            for each in self.see(step.step, step.work):
                LOG.warning("step %d: %s", step.step, each.text)
            on_step(step)

        return hear

    def see(self, number: int, work: Sequence[RankWork]) -> list[SlowRank]:
        """Ranks that are slow now and were not before; `number`: of the step, from 1."""
        if not self.expected or len(work) != len(self.expected[0]):
            return []
        self.steps.append((work, self.expected[(number - 1) % len(self.expected)]))
        if len(self.steps) < STEPS:
            return []
        found = slow_ranks(*(usual_steps(each) for each in zip(*self.steps, strict=True)))
        news = [each for each in found if (each.rank, *each.cause[:2]) not in self.named]
        self.named = {(each.rank, *each.cause[:2]) for each in found}
        return news
