"""Lines through positive measurements whose coefficients cannot be negative: a cost never pays back.

Errors count relative to what was measured, so that short pieces of work are priced as carefully as long ones. Non-
negative least squares over a few columns is the best of the least squares over every subset of them that comes out
non-negative.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FOLDS = 3  # every third measurement is left out, three times


def nonnegative(columns: Array, values: Array, always: tuple[int, ...] = ()) -> Array:
    """The coefficients ≥ 0 with the least sum of squared relative errors; columns in `always` get one above 0.

    columns [measurements, coefficients], values [measurements] > 0.
    """
    rows = columns / values[:, None]
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    rows = rows / scale
    count = columns.shape[1]
    best, least = np.zeros(count), np.inf
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            if not set(always) <= set(chosen):
                continue
            part = np.linalg.lstsq(rows[:, chosen], np.ones(len(rows)), rcond=None)[0]
            error = float(np.sum((rows[:, chosen] @ part - 1) ** 2))
            if part.min() >= 0 and all(part[chosen.index(index)] > 0 for index in always) and error < least:
                best, least = np.zeros(count), error
                best[list(chosen)] = part
    best /= scale
    return best


def residuals(columns: Array, values: Array, coefficients: Array) -> Array:
    """Relative errors of the line, as a share of what was measured."""
    errors: Array = np.abs(columns @ coefficients / values - 1)
    return errors


def holdout_error(columns: Array, values: Array) -> float | None:
    """The median relative error on measurements that the line has not seen; None when too few are left to fit one."""
    count, width = columns.shape
    if count - -(-count // FOLDS) < width:
        return None
    errors = np.empty(count)
    for fold in range(FOLDS):
        left_out = np.arange(count) % FOLDS == fold
        coefficients = nonnegative(columns[~left_out], values[~left_out])
        errors[left_out] = residuals(columns[left_out], values[left_out], coefficients)
    return float(np.median(errors))
