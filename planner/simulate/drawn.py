"""Which ranks a trace draws: all, those asked for, or of very many one of each kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.plan.alike import WHOLE
from planner.simulate.same_tasks import of_same_tasks
from planner.simulate.timeline import Timeline
from planner.specs.base import Ranks


@dataclass(frozen=True, slots=True)
class Drawn:
    """Drawn ranks, each with those that it stands for: they do the same at the same time in all timelines."""

    stands_for: dict[int, Ranks]
    representative: dict[int, int]  # rank → the drawn one that does what it does
    ranks: int

    @property
    def everyone(self) -> bool:
        return len(self.stands_for) == self.ranks

    def of(self, ranks: Ranks) -> list[int]:
        """Those of these ranks that are drawn."""
        return [rank for rank in ranks if rank in self.stands_for]


def choose(timelines: Sequence[Timeline], only: Ranks | None = None) -> Drawn:
    """`only`: those asked for; ranks beyond the job are not there to draw."""
    size = max(timeline.ranks for timeline in timelines)
    if only is not None:
        return alone([rank for rank in only if rank < size], size)
    if size <= WHOLE and not any(timeline.like for timeline in timelines):
        return alone(range(size), size)
    kinds = [kinds_of(timeline) for timeline in timelines]
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(size):
        found.setdefault(tuple(kind[rank] for kind in kinds), []).append(rank)
    stands_for = {ranks[0]: Ranks(ranks) for ranks in found.values()}
    return Drawn(stands_for, {rank: first for first, ranks in stands_for.items() for rank in ranks}, size)


def alone(ranks: Sequence[int], size: int) -> Drawn:
    return Drawn({rank: Ranks((rank,)) for rank in ranks}, {rank: rank for rank in ranks}, size)


def kinds_of(timeline: Timeline) -> list[int]:
    """Of each rank: one that does what it does, −1 if that is nothing."""
    kind = of_same_tasks(Ranks(r for r in event.ranks if r not in timeline.like) for event in timeline.events)
    return [kind.get(timeline.simulated_for(rank), -1) for rank in range(timeline.ranks)]
