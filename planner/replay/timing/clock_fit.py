"""Clocks of the hosts of several ranks, from collectives that all ranks leave together.

A rank's clock shows e = t + o + d·(t − m) where the first rank's shows t: offset o in the middle m of its captures, and
drift d. Over all exits e of collectives i on ranks r, o and d make Σ (e_ri − o_r − d_r·(e_ri − m_r) − t_i)² least, with
t_i the mean of its ranks. A drift is expected within 50 millionths, so few collectives say nothing of it. Collectives
whose exits disagree far more than others do are left out, and the rest is fitted again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.units import US

Exits = dict[int, float]  # rank's index → seconds at which it leaves one collective, on its own clock
FloatArray = NDArray[np.float64]

USUAL_DRIFT = 5e-5
LEAST_NOISE = 1 * US
OUTLIER = 4.0  # times the median residual
MOST_EXITS = 20_000  # that are fitted: of more, evenly chosen collectives
ROUNDS = 4


class Clock(NamedTuple):
    """How far one rank's clock is ahead of the first rank's; the fields are keys of the JSON answer."""

    offset: float  # seconds, in the middle of its capture
    drift: float  # seconds gained each second
    middle: float  # seconds on its own clock
    collectives: int  # that say so; 0: nothing does

    def common(self, time: float) -> float:
        """A time of this clock on that of the first rank, in seconds."""
        return time - self.offset - self.drift * (time - self.middle)


class ClockFit(NamedTuple):
    """Clocks of all ranks, and how well they fit."""

    clocks: list[Clock]
    residual: float  # median seconds by which exits differ from their collective's mean

    def spread(self, exits: Exits) -> float:
        """Seconds between the first and the last exit of a collective on the common clock."""
        times = [self.clocks[r].common(time) for r, time in exits.items()]
        return max(times) - min(times)


def fit_clocks(count: int, collectives: Sequence[Exits]) -> ClockFit:
    """Fit the clocks of `count` ranks; those that no collective joins with the first rank have 0 collectives."""
    chosen = [each for each in collectives if len(each) > 1]
    step = max(1, -(-sum(map(len, chosen)) // MOST_EXITS))
    chosen = chosen[::step]
    middles = [float(np.median([each[r] for each in chosen if r in each] or [0.0])) for r in range(count)]
    offsets = linked_offsets(count, chosen)
    joined = sorted(offsets)
    clocks = [Clock(offsets.get(r, 0.0), 0.0, middles[r], 0) for r in range(count)]
    fit = ClockFit(clocks, 0.0)
    for _ in range(ROUNDS if len(joined) > 1 else 0):
        errors = [fit.spread(each) for each in chosen]
        usual = max(float(np.median(errors)), LEAST_NOISE)
        kept = [each for each, error in zip(chosen, errors, strict=True) if error <= OUTLIER * usual]
        fit = refined(fit, kept, usual)
    return fit


def linked_offsets(count: int, collectives: Sequence[Exits]) -> dict[int, float]:
    """Offsets from the first rank by medians of differences along links of ranks that share collectives."""
    offsets = {0: 0.0}
    shared: dict[tuple[int, int], list[float]] = {}
    for each in collectives:
        first = min(each)
        for r in each:
            if r != first:
                shared.setdefault((first, r), []).append(each[r] - each[first])
    while True:
        links = [(pair, found) for pair, found in shared.items() if (pair[0] in offsets) != (pair[1] in offsets)]
        if not links:
            return offsets
        (one, other), found = max(links, key=lambda link: (len(link[1]), link[0]))
        difference = float(np.median(found))
        if one in offsets:
            offsets[other] = offsets[one] + difference
        else:
            offsets[one] = offsets[other] - difference


def refined(fit: ClockFit, collectives: Sequence[Exits], noise: float) -> ClockFit:
    """The least-squares fit, begun from another; `noise`: seconds by which exits differ."""
    count = len(fit.clocks)
    counts = np.bincount([r for each in collectives for r in each], minlength=count)
    ranks = np.array([r for each in collectives for r in each], dtype=np.int64)
    owner = np.repeat(np.arange(len(collectives)), [len(each) for each in collectives])
    own = np.array([fit.clocks[r].common(t) for each in collectives for r, t in each.items()], dtype=np.float64)
    from_middle = np.array(
        [t - fit.clocks[r].middle for each in collectives for r, t in each.items()], dtype=np.float64
    )
    design = np.zeros((len(ranks), 2 * count))
    design[np.arange(len(ranks)), ranks] = 1.0
    design[np.arange(len(ranks)), count + ranks] = from_middle
    members = np.bincount(owner).astype(np.float64)

    def centred(values: FloatArray) -> FloatArray:
        sums = np.zeros((len(members), *values.shape[1:]))
        np.add.at(sums, owner, values)
        result: FloatArray = values - (sums.T / members).T[owner]
        return result

    matrix, wanted = centred(design), centred(own - own.min())
    # The first rank's clock is exact; drifts are a priori small; ranks without collectives stay as they are.
    weights = np.full(2 * count, 1e-9)
    weights[count:] = (noise / USUAL_DRIFT) ** 2
    weights[[0, count]] = 1e12
    added = np.linalg.solve(matrix.T @ matrix + np.diag(weights), matrix.T @ wanted)
    clocks = [
        clock._replace(
            offset=clock.offset + float(added[r]),
            drift=clock.drift + float(added[count + r]),
            collectives=int(counts[r]),
        )
        for r, clock in enumerate(fit.clocks)
    ]
    residual = float(np.median(np.abs(wanted - matrix @ added))) if len(wanted) else 0.0
    return ClockFit(clocks, residual)
