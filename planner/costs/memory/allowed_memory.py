"""The memory that a plan may use on a device, for every verb alike, and the chance of running out of it.

The log of measured over predicted bytes is taken as normal around 0, with the spread of a framework's memory
coefficients as its standard deviation. Model states are counted and have no error: a plan that is predicted to exceed
its device fits only if what comes on top of them is less than predicted, so that there it is these bytes' log.
"""

from math import erf, exp, inf, sqrt
from statistics import NormalDist

import numpy as np

from planner.costs.layout_columns import Number
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.hardware.profile import Device
from planner.specs.job import Limits
from planner.units import GIB

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


def allowed_bytes(device: Device, limits: Limits, accounting: MemoryCoefficients) -> float:
    """The most bytes that a rank may hold, its context included: the margin stays free, and the chance of running out
    of memory stays below the job's.
    """
    capacity = device.memory_gib * GIB
    return capacity * min(1 - limits.memory_margin, share_at_chance(limits.oom_chance, accounting.spread))


def device_accounting(device: Device, accounting: MemoryCoefficients) -> MemoryCoefficients:
    """A framework's memory coefficients on a device: the context is the device's own, and a CPU has no workspaces, no
    communication buffers, and an allocator without fragmentation.
    """
    context = device.reserved_gib or (0.0 if device.kind == "cpu" else accounting.context_gib)
    if device.kind == "cpu":
        return with_fields(accounting, context_gib=context, workspace_gib=0.0, buffers=0.0, fragmentation=0.0)
    return with_fields(accounting, context_gib=context)
