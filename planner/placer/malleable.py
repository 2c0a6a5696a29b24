"""The malleable optimum: works on any real numbers of devices, that may change at any time, so that all end together.

A work's speed on n devices is the share of it that is done in a second. Between two widths it can have any mixture of
their speeds over time, so what it can do on n devices on average is the concave envelope of its speeds; seconds that
are linear between widths are no bound. Works that start together and end together take least (Węglarz, Management
Science 28, 1982; Spindle, arXiv 2409.03365): no placement takes less, unless pieces of one work overlap in time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from math import inf

from planner.placer.pieces import Lanes, Piece

HALVINGS = 60
ROUNDING = 1e-12  # relative


@dataclass(frozen=True, slots=True)
class SpeedEnvelope:
    """Widths from 0 on and their speeds, 1/s, of which each device more adds less."""

    widths: tuple[float, ...]
    speeds: tuple[float, ...]

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> "SpeedEnvelope":
        """The envelope of (width, speed)."""
        hull = [(0.0, 0.0)]
        for width, speed in sorted(points, key=lambda point: (point[0], -point[1])):
            if speed > hull[-1][1] * (1 + ROUNDING):
                while len(hull) > 1 and slope(hull[-2], hull[-1]) <= slope(hull[-1], (width, speed)):
                    hull.pop()
                hull.append((width, speed))
        return cls(tuple(width for width, _ in hull), tuple(speed for _, speed in hull))

    @property
    def least_seconds(self) -> float:
        return 1 / self.speeds[-1] if self.speeds[-1] else inf  # nothing runs at all

    def between(self, speed: float) -> tuple[int, float]:
        """Which width is the first of at least this speed, and how far the speed is above the one before, 0 to 1."""
        upper = next((at for at, each in enumerate(self.speeds) if at and each >= speed), len(self.speeds) - 1)
        lower = self.speeds[upper - 1]
        return upper, min(1.0, (speed - lower) / (self.speeds[upper] - lower))

    def width(self, seconds: float) -> float:
        """The devices on which the work takes so long."""
        if seconds < self.least_seconds * (1 - ROUNDING):
            return inf
        upper, part = self.between(1 / seconds)
        return self.widths[upper - 1] + part * (self.widths[upper] - self.widths[upper - 1])


def slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def malleable_seconds(envelopes: Sequence[SpeedEnvelope], devices: int) -> float:
    """The malleable optimum C*, by bisection; infinite where something never ends on so many devices."""
    least = max((each.least_seconds for each in envelopes), default=0.0)
    if least == inf or sum(each.width(least) for each in envelopes) <= devices:
        return least
    most = sum((each.widths[1] / each.speeds[1] for each in envelopes), least)  # on one device, one after the other
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        if sum(each.width(middle) for each in envelopes) <= devices:
            most = middle
        else:
            least = middle
    return least


def longest_ends(after: Mapping[str, Mapping[str, float]], seconds: Mapping[str, float]) -> dict[str, float]:
    """When each ends if all start as soon as what is before them, with its lag, allows; `seconds`: of each."""
    ends: dict[str, float] = {}
    for name in TopologicalSorter(after).static_order():
        ends[name] = max((ends[before] + lag for before, lag in after[name].items()), default=0.0) + seconds[name]
    return ends


def placement_bound(pieces: Sequence[Piece], lanes: Lanes) -> float:
    """Seconds that every placement takes: the critical path at the quickest modes, or the malleable optimum.

    The latter leaves precedences out, and is at least the least device-seconds over the devices. The sum of the optima
    of one level of precedences after the other is no bound: pieces of two levels may run side by side.
    """
    possible = {each.name: [mode for mode in each.modes if mode.width <= lanes.count] for each in pieces}
    quickest = {name: min((mode.seconds for mode in modes), default=inf) for name, modes in possible.items()}
    path = longest_ends({each.name: each.after for each in pieces}, quickest)
    timed = [modes for name, modes in possible.items() if quickest[name]]
    speeds = [SpeedEnvelope.of((m.width, 1 / m.seconds) for m in modes) for modes in timed]
    return max(0.0, *path.values(), malleable_seconds(speeds, lanes.count))
