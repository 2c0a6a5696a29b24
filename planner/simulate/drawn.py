"""Which ranks a trace draws: all, those asked for, or in a large job one representative of each kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.plan.alike import WHOLE
from planner.simulate.same_tasks import of_same_tasks
from planner.simulate.timeline import Timeline
from planner.specs.base import Ranks


@dataclass(frozen=True, slots=True)
class Drawn:
    """The drawn ranks, each with the ranks it stands for: they do the same at the same time in all timelines."""

    stands_for: dict[int, Ranks]  # drawn rank → ranks it represents, itself included
    representative: dict[int, int]  # rank → the drawn rank that does the same
    ranks: int  # of the job

    @property
    def everyone(self) -> bool:
        return len(self.stands_for) == self.ranks

    def of(self, ranks: Ranks) -> list[int]:
        """Those of `ranks` that are drawn."""
        return [rank for rank in ranks if rank in self.stands_for]


def choose(timelines: Sequence[Timeline], only: Ranks | None = None) -> Drawn:
    """Choose the ranks to draw; `only`: those asked for, where ranks beyond the size of the job are ignored."""
    size = max(timeline.ranks for timeline in timelines)
    if only is not None:
        return alone([rank for rank in only if rank < size], size)
    if size <= WHOLE and not any(timeline.like for timeline in timelines):
        return alone(range(size), size)
    kinds = [kinds_of(timeline) for timeline in timelines]
    by_kind: dict[tuple[int, ...], list[int]] = {}
    for rank in range(size):
        by_kind.setdefault(tuple(kind[rank] for kind in kinds), []).append(rank)
    stands_for = {ranks[0]: Ranks(ranks) for ranks in by_kind.values()}
    return Drawn(stands_for, {rank: first for first, ranks in stands_for.items() for rank in ranks}, size)


def alone(ranks: Sequence[int], size: int) -> Drawn:
    """Draw each of these ranks for itself."""
    return Drawn({rank: Ranks((rank,)) for rank in ranks}, {rank: rank for rank in ranks}, size)


def kinds_of(timeline: Timeline) -> list[int]:
    """For each rank, the lowest rank with the same tasks; −1 if it has none."""
    kind = of_same_tasks(Ranks(r for r in event.ranks if r not in timeline.like) for event in timeline.events)
    return [kind.get(timeline.simulated_for(rank), -1) for rank in range(timeline.ranks)]
