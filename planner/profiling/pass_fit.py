"""Seconds of a pass as a function of sizes: linear, or no less than the host needs to launch it.

A GPU works while the host goes on to launch: a pass takes what the slower of both needs. Short ones on a GPU take what
launches do, whatever their size; a CPU does both itself.

Costs are fitted by non-negative least squares of relative errors, which weight short measurements like long ones. With
few columns, the solution is the best of the least-squares solutions over every subset of columns that is non-negative.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import smooth_max

FOLDS = 3  # every third measurement is left out, three times
Array = NDArray[np.float64]


class SizeFit(NamedTuple):
    """Coefficients of columns, and seconds of launches."""

    coefficients: Array
    launches: float = 0.0

    def seconds(self, columns: Array) -> Array:
        """Seconds (measurements,) of columns (measurements, coefficients)."""
        seconds: Array = smooth_max(columns @ self.coefficients, self.launches)
        return seconds

    def errors(self, columns: Array, values: Array) -> Array:
        """Absolute errors, relative to the measured values, (measurements,)."""
        return np.abs(self.seconds(columns) / values - 1)


def fit_sizes(columns: Array, values: Array, asynchronous: bool) -> SizeFit:
    """The fit of measured seconds `values` (measurements,) with the least squared relative errors. On an
    `asynchronous` device the shortest measurements may be launches alone, as many of them as fits best: the median of
    these is what launches take, and the others tell the coefficients.
    """
    by_time, found = np.argsort(values, kind="stable"), list[SizeFit]()
    for launched in range(len(values) - columns.shape[1] if asynchronous else 1):
        short, others = by_time[:launched], by_time[launched:]
        least = float(np.median(values[short])) if launched else 0.0
        found.append(SizeFit(fit_nonnegative(columns[others], values[others]), least))
    return min(found, key=lambda fit: float(np.sum(fit.errors(columns, values) ** 2)))


def holdout_error(columns: Array, values: Array, asynchronous: bool) -> float | None:
    """Median relative error on held-out measurements, in 3-fold cross-validation; None when too few are left to fit."""
    count, width = columns.shape
    if count - -(-count // FOLDS) < width:
        return None
    errors = np.empty(count)
    for fold in range(FOLDS):
        left_out = np.arange(count) % FOLDS == fold
        fit = fit_sizes(columns[~left_out], values[~left_out], asynchronous)
        errors[left_out] = fit.errors(columns[left_out], values[left_out])
    return float(np.median(errors))


def fit_nonnegative(columns: Array, values: Array, always: tuple[int, ...] = ()) -> Array:
    """Coefficients ≥ 0 with the least sum of squared relative errors; those of columns in `always` are above 0.

    `columns`: (measurements, coefficients); `values`: (measurements,), positive.
    """
    weighted = columns / values[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    scale[scale == 0] = 1.0
    weighted = weighted / scale
    count = columns.shape[1]
    best, least = np.zeros(count), np.inf
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            if not set(always) <= set(chosen):
                continue
            part = np.linalg.lstsq(weighted[:, chosen], np.ones(len(weighted)), rcond=None)[0]
            error = float(np.sum((weighted[:, chosen] @ part - 1) ** 2))
            if part.min() >= 0 and all(part[chosen.index(index)] > 0 for index in always) and error < least:
                best, least = np.zeros(count), error
                best[list(chosen)] = part
    best /= scale
    return best
