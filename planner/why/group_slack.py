"""Slack of every group of a step, and the group or rank that is critical."""

from dataclasses import dataclass

from planner.specs.base import Ranks

Key = tuple[int, str]  # micro-batch, group


@dataclass(frozen=True, slots=True)
class GroupSlack:
    """Slack of a group, and the group or rank that it waits for."""

    critical: str  # a group if ranks synchronise in every micro-batch, else a rank
    slack: float  # seconds
    rank: int | None = None  # its rank that works longest over the step; None: ranks sync every micro-batch
    rank_seconds: float | None = None  # during which that rank works


def slack_by_micro_batch(seconds: dict[Key, float]) -> dict[Key, GroupSlack]:
    """Slack where ranks synchronise in every micro-batch: against its slowest group."""
    slowest = {
        micro_batch: max((s, group) for (other, group), s in seconds.items() if other == micro_batch)
        for micro_batch, _ in seconds
    }
    return {key: GroupSlack(slowest[key[0]][1], slowest[key[0]][0] - spent) for key, spent in seconds.items()}


def slack_over_step(ranks_of: dict[str, Ranks], seconds: dict[Key, float]) -> dict[Key, GroupSlack]:
    """Slack where ranks synchronise once a step: total float of each group against the rank that finishes last.

    `seconds` are in the order in which ranks work. A group starts when all its ranks are free, so a group can delay
    others with which it shares no rank.
    """
    finished: dict[int, float] = {}
    works: dict[int, float] = {}
    ends: dict[Key, float] = {}
    for key, spent in seconds.items():
        ranks = ranks_of[key[1]]
        ends[key] = max(finished.get(rank, 0.0) for rank in ranks) + spent
        finished |= dict.fromkeys(ranks, ends[key])
        works |= {rank: works.get(rank, 0.0) + spent for rank in ranks}
    last = max(finished.values(), default=0.0)
    critical = f"rank {min((rank for rank, end in finished.items() if end == last), default=0)}"
    deadline: dict[int, float] = {}  # latest time at which a rank must finish its earlier work
    slacks: dict[Key, GroupSlack] = {}
    for key in reversed(ends):
        ranks = ranks_of[key[1]]
        latest = min(deadline.get(rank, last) for rank in ranks)
        deadline |= dict.fromkeys(ranks, latest - seconds[key])
        longest = max(ranks, key=lambda rank: works[rank])
        slacks[key] = GroupSlack(critical, latest - ends[key], longest, works[longest])
    return slacks
