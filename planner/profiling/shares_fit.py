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
from numpy.typing import NDArray

from planner.specs.hardware.profile import DeviceShares, TimedPair
from planner.units import MS, four_digits

Array = NDArray[np.float64]
MOST_KAPPA = 16.0
STEPS, ROUNDS = 151, 4  # values of κ that are tried at a time, and how often


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
    errors = [pair_error(model, pair, fit_gamma(model, others)) for pair, others in left_out(model, pairs)]
    return DeviceShares(
        source="fitted",
        device=device,
        kappa=four_digits(model.kappa),
        gamma=four_digits(gamma),
        launch_threads=launch_threads,
        memory_shares={
            name: four_digits(share) for name, share in model.memory_shares.items() if name not in streaming
        },
        pairs=tuple(timed_pair(model, pair) for pair in pairs),
        holdout_error=four_digits(max(errors)) if errors else None,
    )


def fit_alone(alone: Alone, streaming: set[str]) -> SharesModel:
    """Find κ and the share of each module that is bound by memory: κ by ever finer steps around the best so far."""
    whole = {subject: seconds for (subject, share), seconds in alone.items() if share == 1.0}
    points: dict[str, list[tuple[float, float]]] = {subject.module: [] for subject in whole}
    for (subject, share), seconds in alone.items():
        if share < 1.0:
            points[subject.module].append((share, seconds / whole[subject]))
    kappas, bound, at = np.linspace(1.0, MOST_KAPPA, STEPS), dict[str, Array](), 0
    for _ in range(ROUNDS):
        errors = np.zeros(len(kappas))
        for module, of_module in points.items():
            bound[module], own = module_errors(kappas, np.array(of_module).reshape(-1, 2), module in streaming)
            errors += own
        at = int(np.argmin(errors))
        best = float(kappas[at])
        memory_shares = {module: float(each[at]) for module, each in bound.items()}
        kappas = np.linspace(float(kappas[max(0, at - 1)]), float(kappas[min(len(kappas) - 1, at + 1)]), STEPS)
    return SharesModel(best, memory_shares, whole)


def module_errors(kappas: Array, points: Array, streams: bool) -> tuple[Array, Array]:
    """For each κ, (kappas,), the best share of a module that is bound by memory, and the squared relative errors that
    it leaves; `points`: share of the device, and seconds on it over those on all of it, (points, 2).
    """
    shares, slower = points.T
    saved = (1.0 / shares - 1.0 / np.minimum(kappas[:, None] * shares, 1.0)) / slower  # (kappas, points)
    off = (1.0 / shares - slower) / slower
    squares = (saved * saved).sum(1)
    best = np.divide((saved * off).sum(1), squares, out=np.zeros_like(squares), where=squares > 0)
    bound = np.ones_like(best) if streams else np.clip(best, 0.0, 1.0)
    return bound, ((off - bound[:, None] * saved) ** 2).sum(1)


def fit_gamma(model: SharesModel, pairs: Sequence[SharedPairTime]) -> float:
    """Find γ by least squares of the times side by side over those alone; 0 where no pair demands too much."""
    excess = np.array([model.excess(pair) for pair in pairs for _ in pair.seconds])
    slower = np.array([s / t for pair in pairs for s, t in zip(pair.seconds, model.beside(pair, 0.0), strict=True)])
    squares = float((excess * excess).sum())
    return max(0.0, float((excess * (slower - 1.0)).sum()) / squares) if squares else 0.0


def left_out(
    model: SharesModel, pairs: Sequence[SharedPairTime]
) -> Iterable[tuple[SharedPairTime, list[SharedPairTime]]]:
    """Each pair with those of other subjects, where these tell the γ that it needs."""
    for pair in pairs:
        others = [other for other in pairs if {*other.subjects} != {*pair.subjects}]
        if not model.excess(pair) or any(map(model.excess, others)):
            yield pair, others


def pair_error(model: SharesModel, pair: SharedPairTime, gamma: float) -> float:
    """The larger relative error of the two times of a pair."""
    predicted = model.beside(pair, gamma)
    return max(abs(one / other - 1.0) for one, other in zip(predicted, pair.seconds, strict=True))


def timed_pair(model: SharesModel, pair: SharedPairTime) -> TimedPair:
    first, second = pair.subjects
    return TimedPair(
        modules=(first.text, second.text),
        shares=pair.shares,
        alone_ms=(four_digits(model.whole[first] / MS), four_digits(model.whole[second] / MS)),
        ms=(four_digits(pair.seconds[0] / MS), four_digits(pair.seconds[1] / MS)),
    )
