"""Seconds of a pass as a function of sizes: linear, or no less than the host needs to launch it.

A GPU works while the host goes on to launch: a pass takes what the slower of both needs. Short ones on a GPU take what
launches do, whatever their size; a CPU does both itself.
"""

from typing import NamedTuple

import numpy as np

from planner.costs import smooth_max
from planner.profiling.nonnegative_fit import Array, fit_nonnegative

FOLDS = 3  # every third measurement is left out, three times


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
