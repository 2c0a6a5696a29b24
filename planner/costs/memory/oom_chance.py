"""The chance of running out of memory, and the bytes at which it is a given one.

The log of measured over predicted bytes is taken as normal around 0, with the spread of a framework's memory
coefficients as its standard deviation. Model states are counted and have no error: a plan that is predicted to exceed
its device fits only if what comes on top of them is less than predicted, so that there it is these bytes' log.
"""

from math import erf, exp, inf, sqrt
from statistics import NormalDist

import numpy as np

from planner.costs.layout_columns import Number

# Reserved and unusable over allocated bytes where chunks of layers (vpp) mix lifetimes and PyTorch's allocator has no
# expandable segments. Of Llama-3-70B's fine-tuning on H100 of 80 GB 55.6 GB ran without them and 58.8 GB did not, which
# with them did (Megatron-Bridge's ablation): 0.42 to 0.50. arXiv 2507.16274 found up to 0.75.
FRAGMENTED = 0.46
CERTAIN = 6.0  # deviations beyond which a chance counts as 0 or 1


def oom_chance(predicted_bytes: Number, device_bytes: Number, spread: Number, states: Number = 0.0) -> Number:
    """The chance that a run of so many predicted bytes, of them `states` of the model, exceeds its device."""
    counted = np.where(np.asarray(predicted_bytes) > device_bytes, states, 0.0)
    room = np.maximum(device_bytes - counted, 1.0)
    excess = np.log((predicted_bytes - counted) / room) / np.maximum(spread, 1e-9)
    return 0.5 * (1.0 + np.vectorize(erf, otypes=[float])(np.clip(excess / sqrt(2.0), -CERTAIN, CERTAIN)))


def share_at_chance(chance: float, spread: float) -> float:
    """The share of a device that predicted bytes may take so that this is the chance of exceeding it: the inverse."""
    return inf if chance >= 1 else exp(NormalDist().inv_cdf(chance) * spread)
