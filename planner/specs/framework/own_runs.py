"""Runs that a user measured, kept beside the coefficients of the framework that ran them, and how alike two jobs are.

Coefficients of a job deviate from those in the file: partly as those of all its framework's jobs do, and partly the
more alike the nearer two jobs are. Nearness is of what a job says, not of a layout: all plans of a job have one set of
prices, which their order, their seconds and their bounds are of.
"""

from math import exp, log

from planner.specs.base import Count, Positive, RankCount, Spec
from planner.specs.framework.coefficient_priors import WIDTHS
from planner.specs.measured_run import JOB_FACTS, MeasuredRun, steps_apart

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
        """What it ran."""
        return MeasuredRun(*(getattr(self, name) for name in MeasuredRun._fields))

    @property
    def log_error(self) -> float:
        """The logarithm of predicted over measured seconds."""
        return log(self.predicted / self.measured)


def correlation(one: MeasuredRun, other: MeasuredRun, doublings: float) -> float:
    """Of the deviations of one coefficient in two jobs of a framework. `doublings`: between their devices' peaks."""
    steps = sum(far for name, far in steps_apart(one, other, doublings).items() if name in JOB_FACTS)
    return SHARED + (1.0 - SHARED) * exp(-steps)
