"""Compute time of each rank beside its simulation, and the stragglers that make all others wait."""

from dataclasses import dataclass
from statistics import median

from planner.simulate import Timeline

PHASES = ("F", "B", "I", "W")
STRAGGLER_RATIO = (
    1.1  # over the median: stragglers in MegaScale took about a tenth longer (arXiv 2402.15627, section 5)
)


@dataclass(frozen=True, slots=True)
class RankComputeTime:
    """Simulated and measured compute seconds of one rank, without waiting."""

    rank: int
    simulated: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over simulated seconds."""
        return self.measured / self.simulated


def compute_times(simulated: Timeline, measured: Timeline) -> tuple[RankComputeTime, ...]:
    """Compute time of every rank that computes in both timelines."""
    expected, found = compute_seconds(simulated), compute_seconds(measured)
    everyone = [(rank, expected.get(simulated.representative_of(rank), 0.0)) for rank in sorted(found)]
    return tuple(RankComputeTime(rank, seconds, found[rank]) for rank, seconds in everyone if seconds > 0)


def compute_seconds(timeline: Timeline) -> dict[int, float]:
    """Compute seconds by rank."""
    seconds: dict[int, float] = {}
    for event in timeline.events:
        if event.phase in PHASES:
            for rank in event.ranks:
                seconds[rank] = seconds.get(rank, 0.0) + event.seconds - event.comm
    return seconds


def slow_ranks(paced: tuple[RankComputeTime, ...]) -> list[RankComputeTime]:
    """Stragglers, slowest first: ranks whose ratio exceeds the median ratio by more than a tenth."""
    if len(paced) < 2:
        return []
    usual = median(each.ratio for each in paced)
    return sorted(
        (each for each in paced if each.ratio > STRAGGLER_RATIO * usual), key=lambda each: (-each.ratio, each.rank)
    )
