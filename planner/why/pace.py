"""Who sets the pace of a step, and how much longer every group could take before anything ended later."""

from dataclasses import dataclass

from planner.specs.base import Ranks

Key = tuple[int, str]  # micro-batch, group


@dataclass(frozen=True, slots=True)
class Pace:
    """What a group is measured against."""

    by: str  # a group where ranks meet in every micro-batch, else a rank
    slack: float  # seconds
    rank: int | None = None  # of the group's own, the one that works longest over the step; None: ranks meet before
    rank_seconds: float | None = None  # that it works


def by_row(seconds: dict[Key, float]) -> dict[Key, Pace]:
    """Ranks meet in every micro-batch: its slowest group, and how much longer that takes."""
    slowest = {row: max((s, group) for (r, group), s in seconds.items() if r == row) for row, _ in seconds}
    return {key: Pace(slowest[key[0]][1], slowest[key[0]][0] - spent) for key, spent in seconds.items()}


def over_step(ranks_of: dict[str, Ranks], seconds: dict[Key, float]) -> dict[Key, Pace]:
    """Ranks meet once a step: the rank that is done last, and a group's total float against its end.

    `seconds` are in the order in which ranks work. A group waits for all its ranks, so a rank's groups can delay others
    that it has no part in.
    """
    done: dict[int, float] = {}
    works: dict[int, float] = {}
    ends: dict[Key, float] = {}
    for key, spent in seconds.items():
        ranks = ranks_of[key[1]]
        ends[key] = max(done.get(rank, 0.0) for rank in ranks) + spent
        done |= dict.fromkeys(ranks, ends[key])
        works |= {rank: works.get(rank, 0.0) + spent for rank in ranks}
    last = max(done.values(), default=0.0)
    pace = f"rank {min((rank for rank, end in done.items() if end == last), default=0)}"
    due: dict[int, float] = {}  # when a rank must be done with what it does before
    paces: dict[Key, Pace] = {}
    for key in reversed(ends):
        ranks = ranks_of[key[1]]
        latest = min(due.get(rank, last) for rank in ranks)
        due |= dict.fromkeys(ranks, latest - seconds[key])
        longest = max(ranks, key=lambda rank: works[rank])
        paces[key] = Pace(pace, latest - ends[key], longest, works[longest])
    return paces
