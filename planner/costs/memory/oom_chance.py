"""The chance of running out of memory, and the bytes at which it is a given one.

The log of measured over predicted bytes is taken as normal around 0, with the spread of a framework's memory
coefficients as its standard deviation.
"""

from math import erf, exp, inf, sqrt
from statistics import NormalDist

import numpy as np

from planner.costs.layout_columns import Number

CERTAIN = 6.0  # deviations beyond which a chance counts as 0 or 1


def oom_chance(predicted_bytes: Number, device_bytes: Number, spread: Number) -> Number:
    """The chance that a run of so many predicted bytes exceeds its device."""
    excess = np.log(np.asarray(predicted_bytes) / device_bytes) / np.maximum(spread, 1e-9)
    return 0.5 * (1.0 + np.vectorize(erf, otypes=[float])(np.clip(excess / sqrt(2.0), -CERTAIN, CERTAIN)))


def share_at_chance(chance: float, spread: float) -> float:
    """The share of a device that predicted bytes may take so that this is the chance of exceeding it: the inverse."""
    return inf if chance >= 1 else exp(NormalDist().inv_cdf(chance) * spread)
