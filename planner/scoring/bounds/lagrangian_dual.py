"""Least makespans of divisible sequences on destinations that share micro-batches: a bound by Lagrangian duality.

A destination w is a set of ranks of one micro-batch (or of several, aggregated) that sequences can go to, in fractions:

    Σ_i a_wi x_wi + o_w ≤ F_w·C_m(w)       its time: a_w seconds of each of its F_w lanes, o_w of which are spent
    Σ_i s_i x_wi ≤ R_w                     its tokens
    Σ_w x_wi = n_i                         every sequence is assigned (n_i of them have the same size)

and Σ_m C_m, over micro-batches m, is minimised. For multipliers y, z ≥ 0 of times and tokens with
Σ_{w in m} F_w y_w = 1,

    Σ_i n_i·min_w (y_w a_wi + z_w s_i)  +  Σ_w y_w o_w  −  Σ_w z_w R_w

is a bound: every sequence independently takes its cheapest destination. It is concave; subgradients with Polyak's step
towards a known value maximise it. The bound holds wherever they stop.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 150  # of the subgradient method
PATIENCE = 8  # steps without gain before the step is halved
FINEST_STEP = 1e-3  # of the first step
FORBIDDEN = 1e3  # times all other work: cost of a sequence at a destination that cannot take it
TOKEN_UNIT = 2.0  # times the least cost of a token: best in experiments on batches of Wikipedia


@dataclass(frozen=True, slots=True)
class DivisibleSequences:
    """Divisible sequences, equal ones aggregated into kinds."""

    sizes: Floats  # (kinds,) tokens
    counts: Floats  # (kinds,)
    seconds: Floats  # (kinds, shapes) alone on a group of that shape, inf where not allowed


@dataclass(frozen=True, slots=True)
class Destination:
    """Ranks that sequences can go to. Times are in seconds of the micro-batch that it belongs to."""

    micro_batch: int
    costs: Floats  # (kinds,) a / F
    fixed_seconds: float  # o / F
    token_room: float  # tokens


def relaxed_seconds(fluid: DivisibleSequences, destinations: list[Destination], enough: float) -> float:
    """Lower bound on Σ C in seconds; the ascent stops at `enough`. Infinite when the tokens do not fit."""
    room = np.array([destination.token_room for destination in destinations])
    if (room < 0).any() or fluid.sizes @ fluid.counts > room.sum():
        return float("inf")
    micro_batches = np.array([destination.micro_batch for destination in destinations])
    return maximise_dual(
        LagrangianDual(fluid, destinations, room, micro_batches[:, None] == np.unique(micro_batches)), enough
    )


class LagrangianDual:
    """The dual function, with tokens scaled to their cost, so that both kinds of multipliers have one magnitude."""

    def __init__(
        self, fluid: DivisibleSequences, destinations: list[Destination], room: Floats, members: NDArray[np.bool_]
    ) -> None:
        costs = np.array([destination.costs for destination in destinations])
        cheapest = costs.min(axis=0)
        least = float(np.where(np.isinf(cheapest), 0.0, cheapest) @ fluid.counts)
        self.costs = np.where(np.isinf(costs), FORBIDDEN * max(least, 1.0), costs)  # (destinations, kinds) seconds
        tokens = float(fluid.sizes @ fluid.counts)
        unit = TOKEN_UNIT * least / tokens if tokens else 0.0
        self.counts, self.sizes = fluid.counts, fluid.sizes * unit
        self.room = np.minimum(room, 2 * tokens) * unit  # more than all tokens is as good as unlimited
        self.fixed_seconds = np.array([destination.fixed_seconds for destination in destinations])
        self.members, self.sums = members, members.sum(axis=0)  # (destinations, micro_batches); (micro_batches,)
        # Destinations of each micro-batch that has several.
        self.shared = [np.flatnonzero(of_micro_batch) for of_micro_batch in members.T if of_micro_batch.sum() > 1]
        self.kinds = np.arange(len(fluid.sizes))

    def __call__(self, times: Floats, tokens: Floats) -> tuple[float, Floats, Floats]:
        """The bound at these multipliers, (destinations,) each, and its supergradients."""
        priced = times[:, None] * self.costs + tokens[:, None] * self.sizes
        chosen = priced.argmin(axis=0)
        value = self.counts @ priced[chosen, self.kinds] + times @ self.fixed_seconds - tokens @ self.room
        destinations = len(self.fixed_seconds)
        by_time = np.bincount(chosen, self.counts * self.costs[chosen, self.kinds], destinations) + self.fixed_seconds
        by_tokens = np.bincount(chosen, self.counts * self.sizes, destinations) - self.room
        return float(value), by_time, by_tokens

    def project(self, times: Floats) -> Floats:
        """The nearest multipliers ≥ 0 that sum to 1 in each micro-batch."""
        projected = np.ones_like(times)  # of micro-batches with a single destination
        for destinations in self.shared:
            projected[destinations] = project_to_simplex(times[destinations])
        return projected


def maximise_dual(dual: LagrangianDual, enough: float) -> float:
    """The best dual value found, starting from equal multipliers of times and zero ones of tokens."""
    times, tokens = dual.project(np.zeros(len(dual.fixed_seconds))), np.zeros(len(dual.fixed_seconds))
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
        if best >= enough or length < FINEST_STEP or steepness <= 0.0:
            break
        step = length * (enough - value) / steepness
        times, tokens = dual.project(times + step * by_time), np.maximum(0.0, tokens + step * by_tokens)
    return float(best)


def project_to_simplex(point: Floats) -> Floats:
    """The nearest point of {x ≥ 0, Σx = 1} (Held, Wolfe and Crowder 1974)."""
    point = point - point.max()  # a common shift changes nothing, and near 0 least is lost in rounding
    total = level = 0.0
    for number, value in enumerate(sorted(point.tolist(), reverse=True), 1):  # few values: quicker than with arrays
        total += value
        excess = (total - 1.0) / number
        if value > excess:
            level = excess
    nearest: Floats = np.maximum(point - level, 0.0)
    return nearest
