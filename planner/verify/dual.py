"""How soon a fluid of sequences can be done in places that share micro-batches: a lower bound by Lagrangian duality.

A place is ranks of one micro-batch (or of several, taken together) that sequences can go to, in parts if that helps:

    Σ_i a_wi x_wi + o_w ≤ F_w·C_row(w)     its time: a_w seconds of each of its F_w lanes, o_w that is spent anyway
    Σ_i s_i x_wi ≤ R_w                     its tokens
    Σ_w x_wi = n_i                         every sequence somewhere (n_i of them have the same size)

and Σ_row C_row is the least there can be. For multipliers y, z ≥ 0 of times and tokens with Σ_{w in row} F_w y_w = 1,

    Σ_i n_i·min_w (y_w a_wi + z_w s_i)  +  Σ_w y_w o_w  −  Σ_w z_w R_w

is a bound: every sequence takes its cheapest place on its own. It is concave; subgradients with Polyak's step towards a
known value climb it. The bound holds wherever they stop.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 150  # of the subgradient method
PATIENCE = 8  # steps without gain before the step is halved
FINEST = 1e-3  # of the first step
FORBIDDEN = 1e3  # times all other work: what a sequence costs in a place where it may not be
TOKEN_UNIT = 2.0  # times what a token costs at least: found best on batches of Wikipedia


@dataclass(frozen=True, slots=True)
class Fluid:
    """Sequences, equal ones together."""

    sizes: Floats  # (kinds,) tokens
    counts: Floats  # (kinds,)
    seconds: Floats  # (kinds, shapes): alone on a group, inf where it may not be


@dataclass(frozen=True, slots=True)
class Place:
    """Ranks that sequences can go to. Units: seconds of the row that it belongs to."""

    row: int
    costs: Floats  # (kinds,): a / F
    spent: float  # o / F
    room: float  # tokens


def fluid_seconds(fluid: Fluid, places: list[Place], enough: float) -> float:
    """The bound on Σ C; it stops climbing at `enough`. Infinite when the tokens do not fit."""
    room = np.array([place.room for place in places])
    if (room < 0).any() or fluid.sizes @ fluid.counts > room.sum():
        return float("inf")
    rows = np.array([place.row for place in places])
    return climb(Dual(fluid, places, room, rows[:, None] == np.unique(rows)), enough)


class Dual:
    """The dual function, its tokens in units of what they cost, so that both kinds of multipliers are alike."""

    def __init__(self, fluid: Fluid, places: list[Place], room: Floats, members: NDArray[np.bool_]) -> None:
        costs = np.array([place.costs for place in places])
        cheapest = costs.min(axis=0)
        least = float(np.where(np.isinf(cheapest), 0.0, cheapest) @ fluid.counts)
        self.costs = np.where(np.isinf(costs), FORBIDDEN * max(least, 1.0), costs)  # (places, kinds) seconds
        tokens = float(fluid.sizes @ fluid.counts)
        unit = TOKEN_UNIT * least / tokens if tokens else 0.0
        self.counts, self.sizes = fluid.counts, fluid.sizes * unit
        self.room = np.minimum(room, 2 * tokens) * unit  # more than all tokens is as good as endless
        self.spent = np.array([place.spent for place in places])
        self.members, self.sums = members, members.sum(axis=0)  # (places, rows); (rows,)
        self.shared = [np.flatnonzero(row) for row in members.T if row.sum() > 1]  # places of each row that has several
        self.kinds = np.arange(len(fluid.sizes))

    def __call__(self, times: Floats, tokens: Floats) -> tuple[float, Floats, Floats]:
        """The bound at these multipliers, and its supergradients."""
        priced = times[:, None] * self.costs + tokens[:, None] * self.sizes
        chosen = priced.argmin(axis=0)
        value = self.counts @ priced[chosen, self.kinds] + times @ self.spent - tokens @ self.room
        places = len(self.spent)
        by_time = np.bincount(chosen, self.counts * self.costs[chosen, self.kinds], places) + self.spent
        by_tokens = np.bincount(chosen, self.counts * self.sizes, places) - self.room
        return float(value), by_time, by_tokens

    def project(self, times: Floats) -> Floats:
        """The nearest multipliers ≥ 0 that sum to 1 in each row."""
        projected = np.ones_like(times)  # of rows with a single place
        for places in self.shared:
            projected[places] = simplex(times[places])
        return projected


def climb(dual: Dual, enough: float) -> float:
    """The best value met; from equal multipliers of times, and none of tokens."""
    times, tokens = dual.project(np.zeros(len(dual.spent))), np.zeros(len(dual.spent))
    best, at, length, stalled = -np.inf, (times, tokens), 1.0, 0
    for _ in range(STEPS):
        value, by_time, by_tokens = dual(times, tokens)
        if value > best:
            best, at, stalled = value, (times, tokens), 0
        elif (stalled := stalled + 1) >= PATIENCE:
            (times, tokens), length, stalled = at, length / 2, 0
            continue
        by_time = by_time - dual.members @ ((dual.members.T @ by_time) / dual.sums)
        by_tokens = np.where((tokens <= 0) & (by_tokens < 0), 0.0, by_tokens)
        steepness = float(by_time @ by_time + by_tokens @ by_tokens)
        if best >= enough or length < FINEST or steepness <= 0.0:
            break
        step = length * (enough - value) / steepness
        times, tokens = dual.project(times + step * by_time), np.maximum(0.0, tokens + step * by_tokens)
    return float(best)


def simplex(point: Floats) -> Floats:
    """The nearest point of {x ≥ 0, Σx = 1} (Held, Wolfe and Crowder 1974)."""
    point = point - point.max()  # the same for all changes nothing, and near 0 none is lost in rounding
    total = level = 0.0
    for number, value in enumerate(sorted(point.tolist(), reverse=True), 1):  # of few: quicker than by arrays
        total += value
        excess = (total - 1.0) / number
        if value > excess:
            level = excess
    nearest: Floats = np.maximum(point - level, 0.0)
    return nearest
