"""Which ranks a trace draws: all, those asked for, or of very many one of each kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.simulate.alike import alike
from planner.simulate.timeline import Timeline
from planner.specs.base import Ranks

MOST_RANKS = 64  # of which all are drawn unless somebody says which


@dataclass(frozen=True, slots=True)
class Shown:
    """Drawn ranks, each with those that it stands for: they do the same at the same time in all timelines."""

    stands_for: dict[int, Ranks]
    representative: dict[int, int]  # rank → the drawn one that does what it does
    ranks: int

    @property
    def everyone(self) -> bool:
        return len(self.stands_for) == self.ranks

    def sources(self, timeline: Timeline) -> dict[int, list[int]]:
        """Rank with events of its own → the drawn ranks that do the same."""
        found: dict[int, list[int]] = {}
        for rank in self.stands_for:
            found.setdefault(timeline.simulated_for(rank), []).append(rank)
        return found


def choose(timelines: Sequence[Timeline], only: Ranks | None = None) -> Shown:
    """`only`: those asked for; ranks beyond the job are not there to draw."""
    size = max(timeline.ranks for timeline in timelines)
    if only is not None:
        return alone([rank for rank in only if rank < size], size)
    if size <= MOST_RANKS and not any(timeline.like for timeline in timelines):
        return alone(range(size), size)
    kinds = [kinds_of(timeline) for timeline in timelines]
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(size):
        found.setdefault(tuple(kind[rank] for kind in kinds), []).append(rank)
    stands_for = {ranks[0]: Ranks(ranks) for ranks in found.values()}
    return Shown(stands_for, {rank: first for first, ranks in stands_for.items() for rank in ranks}, size)


def alone(ranks: Sequence[int], size: int) -> Shown:
    return Shown({rank: Ranks((rank,)) for rank in ranks}, {rank: rank for rank in ranks}, size)


def kinds_of(timeline: Timeline) -> list[int]:
    """Of each rank: one that does what it does, −1 if that is nothing."""
    kind = alike(Ranks(r for r in event.ranks if r not in timeline.like) for event in timeline.events)
    return [kind.get(timeline.simulated_for(rank), -1) for rank in range(timeline.ranks)]
