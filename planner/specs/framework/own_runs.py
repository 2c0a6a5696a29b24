"""What a run was whose steps somebody timed, how far two are apart, and what runs of a user tell of a job.

Runs that a user measured are kept beside the coefficients of the framework that ran them. Coefficients of a job deviate
from those in the file: partly as those of all its framework's jobs do, and partly the more alike the nearer two jobs
are. Nearness is of what a job says, not of a layout: all plans of a job have one set of prices, which their order,
their seconds and their bounds are of.

What runs tell of a job's coefficients is as much of their errors as uncertainty explains, and no more. Let the
logarithm of the seconds of run i change by g_i with the logarithms of coefficients. These are uncertain by Σ, alike in
two jobs by c (`correlation`), and runs deviate by σ from any coefficients. Errors e of runs, in the logarithm, have the
covariance

    K_ij = c_ij g_iᵀΣg_j + σ² [i = j]

and the likeliest coefficients of a job, as alike to run i as c_i, are Σ_i c_i Σg_i (K⁻¹e)_i less than before: a normal
distribution conditioned on what was measured. That changes the log seconds of a run of that job, with slopes h, by
−Σ_i c_i hᵀΣg_i (K⁻¹e)_i.
"""

from collections.abc import Mapping, Sequence
from math import exp, log, log2, sqrt
from typing import Any, NamedTuple

from planner.specs.base import Count, Positive, RankCount, Spec, with_fields
from planner.specs.framework.timing_coefficients import AT_MOST_ONE, WIDTHS, TimingCoefficients

DEGREES = ("ranks", "tp", "pp", "cp", "ep", "seq", "billions")  # half a step away for each doubling
KINDS = ("software", "dtype", "experts", "zero")  # one step where they differ
OTHER_DEVICE = 0.5  # a device of the same peak
JOB_FACTS = frozenset({"device", "dtype", "experts", "ranks", "seq", "billions"})  # those that a job says before a plan


class MeasuredRun(NamedTuple):
    """What one run was, of the module that is largest."""

    device: str  # a name in profiles/devices
    software: str  # a name in profiles/software
    dtype: str  # of products
    experts: bool  # whether it routes tokens to experts
    zero: int  # 1 also where there is nothing to shard
    ranks: int
    tp: int
    pp: int
    cp: int
    ep: int
    seq: int  # tokens of a sequence
    billions: float  # parameters / 1e9


def steps_apart(one: MeasuredRun, other: MeasuredRun, doublings: float) -> dict[str, float]:
    """By fact in which two runs differ, how far they are apart in it. `doublings`: between their devices' peaks."""
    found = {name: abs(log2(getattr(one, name) / getattr(other, name))) / 2.0 for name in DEGREES}
    found |= {name: float(getattr(one, name) != getattr(other, name)) for name in KINDS}
    found["device"] = OTHER_DEVICE + doublings if one.device != other.device else 0.0
    return {name: far for name, far in found.items() if far}


# Chosen by the mean error after one run over published sources, each predicted without itself: it is least from 0.05 to
# 0.2 and from 0.03 to 0.06, whichever source is left out (docs/results.md).
SHARED = 0.1  # of a coefficient's variance: what all jobs of a framework have in common
UNEXPLAINED = 0.05  # standard deviation of the logarithm of seconds that no coefficients explain


class OwnRun(Spec, kw_only=True):
    """A run of a plan: what it ran, of its largest module, and what the coefficients beside it tell of it."""

    plan: str
    device: str  # a name in profiles/devices
    software: str  # a name in profiles/software
    dtype: str  # of products
    experts: bool  # whether it routes tokens to experts
    zero: Count  # 1 also where there is nothing to shard
    ranks: RankCount
    tp: RankCount
    pp: RankCount
    cp: RankCount
    ep: RankCount
    seq: Count  # mean tokens of a sequence
    billions: Positive  # parameters / 1e9
    tflops: Positive  # peak of its device in 16 bits
    predicted: Positive  # seconds of its first step, by these coefficients
    measured: Positive  # seconds of a step
    slopes: dict[str, float]  # by coefficient: change of the logarithm of predicted seconds with its own

    def __post_init__(self) -> None:
        unknown = sorted({*self.slopes} - {*WIDTHS})
        if unknown:
            raise ValueError(f"no coefficient is called `{unknown[0]}` | one of {', '.join(WIDTHS)}")

    @property
    def ran(self) -> MeasuredRun:
        """What the plan ran, of its largest module."""
        return MeasuredRun(*(getattr(self, name) for name in MeasuredRun._fields))

    @property
    def log_error(self) -> float:
        """The logarithm of predicted over measured seconds."""
        return log(self.predicted / self.measured)


def correlation(one: MeasuredRun, other: MeasuredRun, doublings: float) -> float:
    """Correlation of the deviations of one coefficient in two jobs. `doublings`: between the peaks of their devices."""
    steps = sum(far for name, far in steps_apart(one, other, doublings).items() if name in JOB_FACTS)
    return SHARED + (1.0 - SHARED) * exp(-steps)


STEP = -1e-2  # of a logarithm, by which slopes are found: downwards, as some may not be above 0
ALSO = {"tp_exposed": "tp_exposed_backward", "attention": "attention_ampere"}  # what changes with another
# Changes of the logarithms of coefficients: numbers, or arrays that broadcast with a setup's.
Shifts = Mapping[str, Any]


class AfterRuns(NamedTuple):
    """What runs tell of a job: changes of the logarithms of its coefficients, and the deviation that is left of its
    errors over that before, for a plan that coefficients matter to as they do to the run most like it.
    """

    shifts: dict[str, float]
    narrowed: float


def after_runs(runs: Sequence[OwnRun], job: MeasuredRun, tflops: float) -> AfterRuns:
    """What these runs tell of a job on a device of this peak in 16 bits; of its layout nothing is asked."""
    import numpy as np

    if not runs:
        return AfterRuns({}, 1.0)
    names = sorted({name for run in runs for name in run.slopes})
    widths = np.array([WIDTHS[name] for name in names])
    told = widths * np.array([[run.slopes.get(name, 0.0) for name in names] for run in runs])  # (runs, coefficients)
    alike = np.array([[run_correlation(one, other.ran, other.tflops) for other in runs] for one in runs])
    own = np.array([run_correlation(run, job, tflops) for run in runs])
    known = alike * (told @ told.T) + UNEXPLAINED**2 * np.eye(len(runs))
    shifts = -widths * (told.T @ (own * np.linalg.solve(known, [run.log_error for run in runs])))
    nearest = told[int(np.argmax(own))]
    before, shared = nearest @ nearest + UNEXPLAINED**2, own * (told @ nearest)
    left = before - shared @ np.linalg.solve(known, shared)
    return AfterRuns(dict(zip(names, shifts.tolist(), strict=True)), sqrt(left / before))


def run_correlation(run: OwnRun, job: MeasuredRun, tflops: float) -> float:
    """Correlation of the deviations of one coefficient in a run and in a job on a device of this peak in 16 bits."""
    return correlation(run.ran, job, abs(log2(run.tflops / tflops)))


def shifted_timing(timing: TimingCoefficients, shifts: Shifts) -> TimingCoefficients:
    """The coefficients with these changes; a share stays at most 1, or what it is: casts of some recipes are more."""
    import numpy as np

    changed = {}
    for name, shift in shifts.items():
        for field in (name, ALSO.get(name, name)):
            own = getattr(timing, field)
            most = np.maximum(1.0, own) if name in AT_MOST_ONE else np.inf
            changed[field] = np.minimum(most, own * np.exp(shift))
    return with_fields(timing, **changed)
