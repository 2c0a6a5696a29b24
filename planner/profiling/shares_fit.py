"""Fits what modules take on shares of a device, to their times alone on each share and side by side.

Alone, a subject of T seconds on the whole device, of which the share μ of its module is bound by memory, takes

    T(q) = T · ((1 − μ) / q + μ / min(κ·q, 1))                    μ = 1 of a copy, which only streams

and side by side 1 + γ·max(0, Σ b − 1) times as long, where b = min(κ·q, 1, μ·T / T(q)) is the bandwidth that each
demands (costs/compute/contention.py). κ and every μ are those of least squares of relative errors of the times alone; γ
then of the pairs. Each pair is also predicted with the γ of all others: the largest relative error is `holdout_error`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from planner.specs.hardware.profile import DeviceShares, TimedPair
from planner.units import MS

KAPPAS = np.geomspace(1.0, 16.0, 4001)  # that are tried, 0.07 % apart


class Subject(NamedTuple):
    """What is timed: a module's layers over so many tokens, or a copy, of which there are no tokens."""

    module: str
    tokens: int = 0

    @property
    def text(self) -> str:
        return f"{self.module}@{self.tokens}" if self.tokens else self.module


class SharedPairTime(NamedTuple):
    """Seconds of two subjects side by side."""

    subjects: tuple[Subject, Subject]
    shares: tuple[float, float]
    seconds: tuple[float, float]


Alone = Mapping[tuple[Subject, float], float]  # subject, share → seconds


class SharesModel(NamedTuple):
    """What the times of subjects follow."""

    kappa: float
    memory_shares: Mapping[str, float]  # by module
    whole: Mapping[Subject, float]  # seconds on the whole device

    def seconds(self, subject: Subject, share: float) -> float:
        """Seconds alone on a share."""
        bound = self.memory_shares[subject.module]
        return self.whole[subject] * float((1.0 - bound) / share + bound / min(self.kappa * share, 1.0))

    def demanded(self, subject: Subject, share: float) -> float:
        """The share of the bandwidth that it demands alone on a share."""
        streamed = self.memory_shares[subject.module] * self.whole[subject]
        return min(self.kappa * share, 1.0, streamed / self.seconds(subject, share))

    def excess(self, pair: SharedPairTime) -> float:
        """Bandwidth demanded beyond all there is."""
        return max(0.0, sum(map(self.demanded, pair.subjects, pair.shares)) - 1.0)

    def beside(self, pair: SharedPairTime, gamma: float) -> tuple[float, float]:
        """Seconds of both side by side."""
        slower = 1.0 + gamma * self.excess(pair)
        first, second = map(self.seconds, pair.subjects, pair.shares)
        return first * slower, second * slower


def fit_shares(
    alone: Alone, pairs: Sequence[SharedPairTime], streaming: Iterable[str], device: str, launch_threads: int = 1
) -> DeviceShares:
    """What the times say of the device; `streaming`: subjects that do nothing but move bytes."""
    model = fit_alone(alone, {*streaming})
    gamma = fit_gamma(model, pairs)
    errors = [pair_error(model, pair, fit_gamma(model, others)) for pair, others in left_out(pairs)]
    return DeviceShares(
        source="fitted",
        device=device,
        kappa=rounded(model.kappa),
        gamma=rounded(gamma),
        launch_threads=launch_threads,
        memory_shares={name: rounded(share) for name, share in model.memory_shares.items() if name not in streaming},
        pairs=tuple(timed_pair(model, pair) for pair in pairs),
        holdout_error=rounded(max(errors)) if errors else None,
    )


def fit_alone(alone: Alone, streaming: set[str]) -> SharesModel:
    """κ and the share of each module that is bound by memory."""
    whole = {subject: seconds for (subject, share), seconds in alone.items() if share == 1.0}
    modules = dict.fromkeys(subject.module for subject in whole)
    points = [
        (subject.module, share, seconds / whole[subject]) for (subject, share), seconds in alone.items() if share < 1.0
    ]
    errors = np.zeros(len(KAPPAS))
    bound: dict[str, np.ndarray] = {}
    for module in modules:
        shares, slower = (np.array([p[at] for p in points if p[0] == module]) for at in (1, 2))
        reached = 1.0 / np.minimum(KAPPAS[:, None] * shares, 1.0)  # (kappas, points)
        saved = (1.0 / shares - reached) / slower
        off = (1.0 / shares - slower) / slower
        squares = (saved * saved).sum(1)
        best = np.divide((saved * off).sum(1), squares, out=np.zeros_like(squares), where=squares > 0)
        bound[module] = np.ones_like(best) if module in streaming else np.clip(best, 0.0, 1.0)
        errors += ((off - bound[module][:, None] * saved) ** 2).sum(1)
    at = int(np.argmin(errors))
    return SharesModel(float(KAPPAS[at]), {module: float(each[at]) for module, each in bound.items()}, whole)


def fit_gamma(model: SharesModel, pairs: Sequence[SharedPairTime]) -> float:
    """γ by least squares of the times side by side over those alone; 0 where no pair demands more than there is."""
    excess = np.array([model.excess(pair) for pair in pairs for _ in pair.seconds])
    slower = np.array([s / t for pair in pairs for s, t in zip(pair.seconds, model.beside(pair, 0.0), strict=True)])
    squares = float((excess * excess).sum())
    return max(0.0, float((excess * (slower - 1.0)).sum()) / squares) if squares else 0.0


def left_out(pairs: Sequence[SharedPairTime]) -> Iterable[tuple[SharedPairTime, list[SharedPairTime]]]:
    """Each pair with those of other subjects."""
    for pair in pairs:
        yield pair, [other for other in pairs if {*other.subjects} != {*pair.subjects}]


def pair_error(model: SharesModel, pair: SharedPairTime, gamma: float) -> float:
    """The larger relative error of the two times of a pair."""
    predicted = model.beside(pair, gamma)
    return max(abs(one / other - 1.0) for one, other in zip(predicted, pair.seconds, strict=True))


def timed_pair(model: SharesModel, pair: SharedPairTime) -> TimedPair:
    first, second = pair.subjects
    return TimedPair(
        modules=(first.text, second.text),
        shares=pair.shares,
        alone_ms=(rounded(model.whole[first] / MS), rounded(model.whole[second] / MS)),
        ms=(rounded(pair.seconds[0] / MS), rounded(pair.seconds[1] / MS)),
    )


def rounded(value: float) -> float:
    """Rounds to four digits, which are more than was measured."""
    return float(f"{value:.4g}")
