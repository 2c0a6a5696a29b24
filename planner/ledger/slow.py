"""How fast each rank computes beside its simulation: a slow device sets the pace of all that wait for it."""

from dataclasses import dataclass
from statistics import median

from planner.simulate import Timeline

PHASES = ("F", "B", "I", "W")
FAR = 1.1  # times the median: slow hosts took about a tenth longer in MegaScale (arXiv 2402.15627, section 5)


@dataclass(frozen=True, slots=True)
class Paced:
    """Seconds in which one rank computed, without what it waited for."""

    rank: int
    simulated: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.measured / self.simulated


def paces(simulated: Timeline, measured: Timeline) -> tuple[Paced, ...]:
    """Of every rank that computes in both."""
    expected, found = computing(simulated), computing(measured)
    everyone = [(rank, expected.get(simulated.simulated_for(rank), 0.0)) for rank in sorted(found)]
    return tuple(Paced(rank, seconds, found[rank]) for rank, seconds in everyone if seconds > 0)


def computing(timeline: Timeline) -> dict[int, float]:
    seconds: dict[int, float] = {}
    for event in timeline.events:
        if event.phase in PHASES:
            for rank in event.ranks:
                seconds[rank] = seconds.get(rank, 0.0) + event.seconds - event.comm
    return seconds


def slow_ranks(paced: tuple[Paced, ...]) -> list[Paced]:
    """Those that take a tenth longer than the median rank does, each beside its own simulation; slowest first."""
    if len(paced) < 2:
        return []
    usual = median(each.ratio for each in paced)
    return sorted((each for each in paced if each.ratio > FAR * usual), key=lambda each: (-each.ratio, each.rank))
