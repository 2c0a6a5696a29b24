"""Residuals of a fit that are linear in log coefficients near a point, and the coefficients that make them least.

Robust least squares with Gaussian priors: a residual r of standard deviation 1 costs 2·KNEE²(√(1 + (r/KNEE)²) − 1),
quadratic while small and linear beyond the knee, by iteratively reweighted least squares.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KNEE = 3.0  # standard deviations beyond which the cost of a residual grows linearly
REWEIGHTINGS = 50  # at most
SETTLED = 1e-6  # change of a logarithm at which reweighting ends
Logs = NDArray[np.float64]


class LogPriors(NamedTuple):
    """Means (coefficients,) and covariance (coefficients, coefficients) of a normal prior on log coefficients, and the
    most that each may be.
    """

    means: Logs
    covariance: Logs
    most: Logs


class LeastResiduals(NamedTuple):
    """Log coefficients of the least cost, and their posterior covariance (coefficients, coefficients)."""

    logs: Logs
    covariance: Logs


@dataclass(frozen=True, slots=True)
class LinearResiduals:
    """Logs of predicted over measured seconds (cases,) at a point (coefficients,), and slopes (cases, coefficients)."""

    point: Logs
    residuals: Logs
    slopes: Logs

    def at(self, logs: Logs) -> Logs:
        """Residuals (cases,) at other log coefficients."""
        return self.residuals + self.slopes @ (logs - self.point)

    def of_cases(self, chosen: NDArray[np.bool_]) -> "LinearResiduals":
        """The residuals of some cases."""
        return LinearResiduals(self.point, self.residuals[chosen], self.slopes[chosen])

    def least(self, weights: Logs, priors: LogPriors) -> LeastResiduals:
        """The log coefficients of the least cost; `weights` (cases,): one over the deviation of each residual."""
        precision, logs = np.linalg.inv(priors.covariance), np.minimum(self.point, priors.most)
        for _ in range(REWEIGHTINGS):
            off = self.at(logs)
            softened = weights**2 / np.sqrt(1.0 + (off * weights / KNEE) ** 2)
            curvature = (self.slopes * softened[:, None]).T @ self.slopes + precision
            pull = self.slopes.T @ (softened * off) + precision @ (logs - priors.means)
            free = (logs < priors.most) | (pull > 0.0)
            step = np.zeros(len(logs))
            step[free] = np.linalg.solve(curvature[np.ix_(free, free)], -pull[free])
            moved = np.minimum(logs + step, priors.most)
            logs, change = moved, np.max(np.abs(moved - logs), initial=0.0)
            if change < SETTLED:
                break
        return LeastResiduals(logs, np.linalg.inv(curvature))
