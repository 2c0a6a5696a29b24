"""What one measured run tells of coefficients: as much of its error as their uncertainty explains, and no more.

Let the logarithm of a run's seconds change by g with the logarithms of coefficients, which are uncertain by Σ, and let
runs deviate by σ from any coefficients. The likeliest coefficients after one run that was predicted too slow by e, in
the logarithm, are Σg·e / (gᵀΣg + σ²) less than before (a Kalman filter's update by one observation). That changes the
log seconds of another run, with slopes h, by −hᵀΣg·e / (gᵀΣg + σ²).
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.calibrate.coefficients import AT_MOST_ONE, FRAMEWORK_PRIORS, SUSTAINED_PRIOR
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.device_rates import DeviceRates

SUSTAINED = "sustained"  # of the device, in all precisions alike
# Standard deviation of the logarithm of seconds that no coefficients explain: what a fit to published records leaves of
# them, 5.0 % in the median.
UNEXPLAINED = 0.074
STEP = -1e-2  # finite difference of a logarithm: downwards, as some may not be above 0
WIDTHS: Mapping[str, float] = {
    **{name: prior.width for name, prior in FRAMEWORK_PRIORS.items()},
    SUSTAINED: SUSTAINED_PRIOR.width,
}
ALSO = {"tp_exposed": "tp_exposed_backward", "attention": "attention_ampere"}  # what changes with another
Logs = NDArray[np.float64]
Shifts = Mapping[
    str, Any
]  # changes of the logarithms of coefficients: numbers, or arrays that broadcast with a setup's


def shifted_timing(timing: TimingCoefficients, shifts: Shifts) -> TimingCoefficients:
    """The coefficients with these changes; a share stays at most 1, or what it is: casts of some recipes are more."""
    changed = {}
    for name, shift in shifts.items():
        for field in (name, ALSO.get(name, name)) if name != SUSTAINED else ():
            own = getattr(timing, field)
            most = np.maximum(1.0, own) if name in AT_MOST_ONE else np.inf
            changed[field] = np.minimum(most, own * np.exp(shift))
    return with_fields(timing, **changed)


def shifted_rates(rates: DeviceRates, shifts: Shifts) -> DeviceRates:
    """The rates with what is sustained of them changed."""
    factor = np.exp(shifts.get(SUSTAINED, 0.0))
    return with_fields(rates, sustained={name: value * factor for name, value in rates.sustained.items()})


def variance(slopes: Mapping[str, float]) -> float:
    """Of the logarithm of a run's seconds, before it was measured: gᵀΣg + σ²."""
    return sum((WIDTHS[name] * slope) ** 2 for name, slope in slopes.items()) + UNEXPLAINED**2


def standard_deviations(slopes: Mapping[str, float], log_error: float) -> float:
    """How many of them a run's error is."""
    return abs(log_error) / sqrt(variance(slopes))


def shifts_of_run(slopes: Mapping[str, float], log_error: float) -> dict[str, float]:
    """Changes of the logarithms of coefficients after one run that was predicted too slow by `log_error`; `slopes`: of
    its log seconds.
    """
    gain = -log_error / variance(slopes)
    return {name: WIDTHS[name] ** 2 * slope * gain for name, slope in slopes.items()}


def errors_after_one_run(slopes: Logs, widths: Logs, log_errors: Logs) -> Logs:
    """Log errors (runs, runs) after one run each: row i has those of all runs after run i, NaN in its own place.
    `slopes` (runs, coefficients); `widths` (coefficients,) of their logarithms; `log_errors` (runs,) before.
    """
    joint = (slopes * widths**2) @ slopes.T
    gain = joint / (np.diag(joint)[:, None] + UNEXPLAINED**2)
    after: Logs = log_errors[None, :] - gain * log_errors[:, None]
    np.fill_diagonal(after, np.nan)
    return after
