"""Non-negative least squares with relative errors, for costs as linear functions of sizes.

Relative errors weight short measurements like long ones. With few columns, the non-negative solution is the best of the
least-squares solutions over every subset of columns that is non-negative.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
