"""Which ranks a trace draws: all, those asked for, or in a large job one representative of each kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.plan.mesh.identical_groups import MAX_UNFOLDED_RANKS, representative_ranks
from planner.simulate.timeline import Timeline
from planner.specs.base import Ranks


@dataclass(frozen=True, slots=True)
class DrawnRanks:
    """The drawn ranks, each with the ranks it stands for: they do the same at the same time in all timelines."""

    stands_for: dict[int, Ranks]  # drawn rank → ranks it represents, itself included
    representative: dict[int, int]  # rank → the drawn rank that does the same
    job_size: int  # of the job

    @property
    def all_drawn(self) -> bool:
        return len(self.stands_for) == self.job_size

    def drawn_among(self, ranks: Ranks) -> list[int]:
        """The drawn ranks among these."""
        return [rank for rank in ranks if rank in self.stands_for]


def choose_drawn_ranks(timelines: Sequence[Timeline], only: Ranks | None = None) -> DrawnRanks:
    """Choose the ranks to draw; `only`: those asked for, where ranks beyond the size of the job are ignored."""
    size = max(timeline.ranks for timeline in timelines)
    if only is not None:
        return draw_each([rank for rank in only if rank < size], size)
    if size <= MAX_UNFOLDED_RANKS and not any(timeline.representative_rank for timeline in timelines):
        return draw_each(range(size), size)
    kinds = [representatives_of_ranks(timeline) for timeline in timelines]
    by_kind: dict[tuple[int, ...], list[int]] = {}
    for rank in range(size):
        by_kind.setdefault(tuple(kind[rank] for kind in kinds), []).append(rank)
    stands_for = {ranks[0]: Ranks(ranks) for ranks in by_kind.values()}
    return DrawnRanks(stands_for, {rank: first for first, ranks in stands_for.items() for rank in ranks}, size)


def draw_each(ranks: Sequence[int], size: int) -> DrawnRanks:
    """Draw each of these ranks for itself."""
    return DrawnRanks({rank: Ranks((rank,)) for rank in ranks}, {rank: rank for rank in ranks}, size)


def representatives_of_ranks(timeline: Timeline) -> list[int]:
    """For each rank, the lowest rank with the same tasks; −1 if it has none."""
    kind = representative_ranks(
        Ranks(r for r in event.ranks if r not in timeline.representative_rank) for event in timeline.events
    )
    return [kind.get(timeline.representative_of(rank), -1) for rank in range(timeline.ranks)]
