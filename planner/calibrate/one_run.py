"""What one measured run tells of coefficients: as much of its error as their uncertainty explains, and no more.

Let the logarithm of a run's seconds change by g with the logarithms of coefficients, which are uncertain by Σ, and a
run vary by σ. The coefficients that are likeliest after one run of log error e, Σg·e / (gᵀΣg + σ²) less than before
(a Kalman filter's update of one observation), change the log seconds of another run, with slopes h, by

    −hᵀΣg / (gᵀΣg + σ²) · e
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.calibrate.coefficients import AT_MOST_ONE, FRAMEWORK_PRIORS, SUSTAINED_PRIOR
from planner.costs import MachineModel
from planner.specs.base import with_fields

SUSTAINED = "sustained"  # of the device, in every precision alike
RUN_VARIATION = 0.02  # standard deviation of the logarithm of a run's seconds, from one run to the next
STEP = -1e-2  # finite difference of a logarithm: downwards, as some may not be above 0
WIDTHS: Mapping[str, float] = {
    **{name: prior.width for name, prior in FRAMEWORK_PRIORS.items()},
    SUSTAINED: SUSTAINED_PRIOR.width,
}
Logs = NDArray[np.float64]


def shifted_machine(machine: MachineModel, shifts: Mapping[str, float]) -> MachineModel:
    """The machine with these changes of the logarithms of its coefficients; a share stays at most 1."""
    factors = {name: float(np.exp(shift)) for name, shift in shifts.items()}
    rate, timing = factors.pop(SUSTAINED, 1.0), machine.timing
    changed = {name: getattr(timing, name) * factor for name, factor in factors.items()}
    changed |= {name: min(1.0, changed[name]) for name in AT_MOST_ONE if name in changed}
    if "tp_exposed" in changed:
        changed["tp_exposed_backward"] = min(1.0, timing.tp_exposed_backward * factors["tp_exposed"])
    if "attention" in changed:
        changed["attention_ampere"] = timing.attention_ampere * factors["attention"]
    sustained = {dtype: value * rate for dtype, value in machine.rates.sustained.items()}
    rates = with_fields(machine.rates, sustained=sustained)
    return replace(machine, timing=with_fields(timing, **changed), rates=rates)


def shifts_of_run(slopes: Mapping[str, float], log_error: float) -> dict[str, float]:
    """Changes of the logarithms of coefficients after one run whose log seconds were predicted too high by
    `log_error`; `slopes`: of these log seconds.
    """
    explained = sum((WIDTHS[name] * slope) ** 2 for name, slope in slopes.items())
    return {
        name: -(WIDTHS[name] ** 2) * slope * log_error / (explained + RUN_VARIATION**2)
        for name, slope in slopes.items()
        if slope
    }


def errors_after_one_run(slopes: Logs, widths: Logs, log_errors: Logs) -> Logs:
    """Log errors (runs, runs) of every other run after each one: row i is after run i, whose own place has NaN.
    `slopes` (runs, coefficients), `widths` (coefficients,) of their logarithms, `log_errors` (runs,) before.
    """
    joint = (slopes * widths**2) @ slopes.T
    gain = joint / (np.diag(joint)[:, None] + RUN_VARIATION**2)
    after: Logs = log_errors[None, :] - gain * log_errors[:, None]
    np.fill_diagonal(after, np.nan)
    return after
