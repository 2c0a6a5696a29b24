"""Samples of towers on replicas, changed while the step with its exchanges becomes shorter.

State: numbers of samples, (towers, replicas). A replica runs its towers in one order, forwards and then backwards; a
tower's gradients are reduced when its last backward has ended, on all replicas that have it at once, and its weights
gathered when these have updated. Moves put a tower on other consecutive replicas, or shift samples from one replica to
another; where towers keep their replicas, among these. Draws are always the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from planner.costs import Floats, TowerExchange, TowerSeconds
from planner.costs.step import first_to_cover
from planner.moves import ThresholdAccepting
from planner.specs.hardware.profile import BACKWARD_SHARE
from planner.strategies.waves.wave_plan import TowerPass

Counts = NDArray[np.int64]  # (towers, replicas)
BLOCK_SHARE = 0.4  # of the moves, those of whole towers
TOLERANCE = 0.03  # relative increase that is accepted at the start
MEAN_WEIGHT = 0.02  # of the replicas' mean end, beside the last


@dataclass(frozen=True)
class ExchangeSearch:
    """Towers in the order in which replicas run them, and what they exchange."""

    exchange: TowerExchange
    kept: Sequence[Counts] = ()  # of each tower, (replicas,) that have it in any case; none: those with samples of it

    @property
    def towers(self) -> Sequence[TowerSeconds]:
        """The towers, in order."""
        return self.exchange.towers

    @cached_property
    def seconds(self) -> list[Floats]:
        """By tower, seconds of so many samples on one replica, (samples,)."""
        return [np.array(tower.by_count) for tower in self.towers]

    def step(self, samples: Counts) -> tuple[float, float]:
        """The seconds of a step, and the same with a little of the replicas' mean end, by which moves are judged."""
        passes = np.stack([each[own] for each, own in zip(self.seconds, samples, strict=True)])
        whole = passes.sum(axis=0)
        begin = (1.0 - BACKWARD_SHARE) * whole.max()  # losses compare samples of all replicas
        ends = begin + BACKWARD_SHARE * passes.cumsum(axis=0)
        done, free = ends[-1], np.zeros(len(whole))
        held = self.held(samples)
        prices = [self.exchange.of(at, own, samples[at]) for at, own in enumerate(held)]
        ready, constants = list[float](), self.with_constant(held)
        for at, own in enumerate(held):
            ready.append(max(ends[at, own].max(), free[own].max()) + prices[at][0])
            free[own] = ready[at]
        for at, own in enumerate(held):
            done[own] = max(done[own].max(), ready[at]) + self.exchange.constant * (at in constants)
            ready[at] = float(done[own[0]])
        for at, own in enumerate(held):
            free[own] = max(ready[at], free[own].max()) + prices[at][1]
        last = np.maximum(free, done)
        return float(last.max()), float(last.max() + MEAN_WEIGHT * last.mean())

    def held(self, samples: Counts) -> Sequence[Counts]:
        """Of each tower, the replicas that have it."""
        return self.kept or [np.flatnonzero(own) for own in samples]

    def with_constant(self, held: Sequence[NDArray[np.int64]]) -> set[int]:
        """The towers with whose updates a step's constant is counted (costs/step/step_constant.py)."""
        in_order = sorted(range(len(held)), key=lambda at: -len(held[at]))
        return first_to_cover((at, held[at].tolist()) for at in in_order)

    def race(self, starts: Sequence[Counts], moves: int) -> list[Counts]:
        """The best that are found from each start by so many moves, then from the better half again; the best first."""
        first = sorted((self.improved(each, moves) for each in starts), key=self.step)
        again = [self.improved(each, 2 * moves) for each in first[: (1 + len(first)) // 2]]
        return sorted(again, key=self.step)

    def improved(self, start: Counts, moves: int) -> Counts:
        """The best samples found by so many moves."""
        return ThresholdAccepting(self.moved, self.step, TOLERANCE).best(start, moves, Random(0))

    def moved(self, samples: Counts, draws: Random) -> Counts:
        """Counts with one move."""
        after: Counts = samples.copy()
        replicas = samples.shape[1]
        at = int(draws.random() * len(samples))
        if not self.kept and draws.random() < BLOCK_SHARE:
            widths = self.towers[at].widths(replicas)
            width = widths[int(draws.random() * len(widths))]
            first = int(draws.random() * (replicas - width + 1))
            after[at] = 0
            after[at, first : first + width] = spread(len(self.towers[at].samples), width)
            return after
        own, able = np.flatnonzero(samples[at]), self.held(samples)[at]
        source, target = int(own[int(draws.random() * len(own))]), int(able[int(draws.random() * len(able))])
        if not self.kept and draws.random() < 1.0 / len(self.towers):
            target = int(draws.random() * replicas)
        amount = (1, (1 + samples[at, source]) // 2, samples[at, source])[int(draws.random() * 3)]
        after[at, source] -= amount
        after[at, target] += amount
        return after

    def passes(self, samples: Counts) -> list[TowerPass]:
        """One pass of each tower on each replica that has it, in order."""
        found = list[TowerPass]()
        for at, (tower, held) in enumerate(zip(self.towers, self.held(samples), strict=True)):
            every, taken = [*tower.samples], 0
            for replica in held.tolist():
                count = int(samples[at, replica])
                found.append(TowerPass(tower.name, tuple(every[taken : taken + count]), (replica,), float(at)))
                taken += count
        return found


def spread(count: int, width: int) -> NDArray[np.int64]:
    """So many samples over so many replicas, as evenly as can be."""
    return (count + np.arange(width)[::-1]) // width


def samples_of(towers: Sequence[TowerSeconds], passes: Sequence[TowerPass], replicas: int) -> Counts:
    """The samples of each tower on each replica in some passes."""
    place = {tower.name: at for at, tower in enumerate(towers)}
    samples = np.zeros((len(towers), replicas), dtype=np.int64)
    for each in passes:
        samples[place[each.tower], list(each.replicas)] += spread(len(each.samples), len(each.replicas))
    return samples
