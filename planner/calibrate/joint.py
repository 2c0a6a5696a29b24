"""Joint fit of framework coefficients and sustained device rates to published step times.

Least squares of log(predicted/measured seconds): each source has about the same total weight however many records it
has, outliers weigh less, and every coefficient has a Gaussian prior on its logarithm. All frameworks are fitted as one
first; then each by itself, with the common coefficients as its priors.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from planner.calibrate.extra import require_scipy
from planner.calibrate.knobs import (
    COMMON,
    OWN,
    PACES,
    Knob,
    Prior,
    Values,
    knobs,
    pace_of,
    prior,
    with_pace,
    with_traits,
)
from planner.costs.compute.machine import Machine
from planner.costs.step.step import step_seconds
from planner.published.case import Case
from planner.published.priced import Alike, alike

NOISE = 0.04, 0.4  # bounds on the standard deviation of a source's log step times
DEVIATION = 1.4826  # standard deviation over median absolute deviation of a normal distribution
ROWS = 15  # records of a source that count in full; with more, its total weight stays the same
KNEE = 3.0  # standard deviations beyond which the cost of a residual grows linearly
REFITS = 2  # each with the noise that the previous fit leaves
ROUNDS = 12  # most evaluations of a solve
ENOUGH = 1e-4  # relative decrease of the cost at which a solve ends
TELLING = 0.9  # posterior over prior width, above which the records determine next to nothing
STEP = 1e-3  # finite difference of a logarithm
Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """Cases in groups that are priced at once, their machines, and the coefficients to fit."""

    cases: Sequence[Case]
    groups: Sequence[Alike]
    machines: Sequence[Machine]  # one of each group
    names: Sequence[Knob]
    priors: Sequence[Prior]
    held: Values  # coefficients that are not fitted
    most: int  # records of a source that count in full

    def predicted(self, logs: Logs) -> Logs:
        """Logarithms of predicted seconds (cases,) for log coefficients (coefficients,)."""
        result = np.zeros(len(self.cases))
        for group, machine in zip(self.groups, self.machines, strict=True):
            result[group.places] = self.of(group, machine, logs)
        return result

    def slopes(self, logs: Logs) -> Logs:
        """Jacobian (cases, coefficients) of `predicted_logs` by differences; one vectorised pass for each group."""
        jacobian = np.zeros((len(self.cases), len(self.names)))
        for group, machine in zip(self.groups, self.machines, strict=True):
            columns = [number for number, coefficient in enumerate(self.names) if depends(group.first, coefficient)]
            shifted = np.tile(logs, (len(columns) + 1, 1))
            shifted[range(len(columns)), columns] += STEP
            log_seconds = self.of(group, machine, shifted)
            jacobian[group.places[:, None], columns] = (log_seconds[:-1] - log_seconds[-1]).T / STEP
        return jacobian

    def of(self, group: Alike, machine: Machine, logs: Logs) -> Logs:
        """Log seconds (..., cases) of one group, for log coefficients (..., coefficients)."""
        values = dict(zip(self.names, np.moveaxis(np.exp(logs), -1, 0)[..., None], strict=True))
        fitted_machine = fitted(machine, group.first, {**self.held, **values})
        return np.asarray(np.log(step_seconds(group.first.module, group.setup, fitted_machine).seconds))


@dataclass(frozen=True, slots=True)
class Found:
    """Fitted coefficients, and the posterior standard deviation of each one's logarithm."""

    values: dict[Knob, float]
    widths: dict[Knob, float]

    def held(self, coefficient: Knob) -> bool:
        """Whether the records determine next to nothing of it, so that it stays near its prior."""
        return self.widths.get(coefficient, prior(coefficient).width) > TELLING * prior(coefficient).width


def predicted(cases: Sequence[Case], machines: Sequence[Machine], values: Values) -> Logs:
    """Predicted seconds (cases,); a framework without coefficients of its own takes the common ones."""
    seconds = np.zeros(len(cases))
    for group in alike(cases):
        machine = fitted(machines[group.places[0]], group.first, values)
        seconds[group.places] = step_seconds(group.first.module, group.setup, machine).seconds
    return seconds


def fitted(machine: Machine, case: Case, values: Values) -> Machine:
    """The machine with the fitted coefficients of the case's framework and device."""
    owner = case.software if any(coefficient.owner == case.software for coefficient in values) else COMMON
    timing = with_traits(machine.timing, owner, values)
    return replace(machine, timing=timing, rates=with_pace(machine.rates, case.device, values))


def fit(cases: Sequence[Case], machines: Sequence[Machine], start: Values | None = None, most: int = ROWS) -> Found:
    """Fit common coefficients and sustained rates to all cases, then each framework's own near the common ones.

    The second fit keeps the sustained rates, so that the common coefficients describe a framework without records.
    `machines` has one of each case; `most`: records of one source that count in full.
    """
    pooled = problem([replace(case, software=COMMON) for case in cases], machines, {}, cases, most)
    common = solve(pooled, start or {}, noise(pooled, {}))
    separate = problem(cases, machines, common.values, cases, most)
    fitted = common
    for _ in range(REFITS):
        own = solve(separate, {**(start or {}), **fitted.values}, noise(separate, fitted.values))
        fitted = Found(common.values | own.values, common.widths | own.widths)
    return fitted


def noise(given: Problem, found: Values) -> Logs:
    """Standard deviation of each case's log residual (cases,), estimated for its source at these coefficients.

    Some sources state a variation of tens of percent, others measured something else than they state; this keeps them
    from outweighing the sources that agree with the rest.
    """
    logs = np.array([log(found.get(k, p.value)) for k, p in zip(given.names, given.priors, strict=True)])
    residuals = given.predicted(logs) - measured(given.cases)
    sources = np.array([case.origin.source for case in given.cases])
    spread = np.zeros(len(residuals))
    for source in set(sources.tolist()):
        of_source = residuals[sources == source]
        spread[sources == source] = np.clip(np.median(np.abs(of_source)) * DEVIATION, *NOISE)
    return spread


def measured(cases: Sequence[Case]) -> Logs:
    """Logarithms of measured seconds (cases,)."""
    return np.log([case.seconds or 1.0 for case in cases])


def problem(
    cases: Sequence[Case], machines: Sequence[Machine], common: Values, grouped_as: Sequence[Case], most: int
) -> Problem:
    """The problem of these cases with `common` fixed; `grouped_as`: the same cases with their true frameworks."""
    groups = alike(grouped_as)
    names = [coefficient for coefficient in knobs(cases) if not (common and coefficient.name in PACES)]
    firsts = [replace(group, first=cases[group.places[0]]) for group in groups]
    group_machines = [machines[group.places[0]] for group in groups]
    return Problem(cases, firsts, group_machines, names, priors(names, common), common, most)


def priors(names: Sequence[Knob], common: Values) -> list[Prior]:
    """Priors of these coefficients; a framework's are centred on the common coefficients where there are some."""
    centred = []
    for coefficient in names:
        shared = None if coefficient.name in OWN else common.get(Knob(COMMON, coefficient.name))
        own = prior(coefficient)
        centred.append(Prior(shared, own.width) if shared is not None else own)
    return centred


def solve(given: Problem, start: Values, spread: Logs) -> Found:
    """Coefficients of the least loss; `spread` (cases,): standard deviations of the residuals. Raises InputError."""
    require_scipy()
    from scipy.optimize import least_squares

    target = measured(given.cases)
    weights = says(given.cases, given.most) / spread
    means = np.array([log(each.value) for each in given.priors])
    widths = np.array([each.width for each in given.priors])

    def residuals(logs: Logs) -> Logs:
        off = weights * (given.predicted(logs) - target)
        return np.concatenate([softened(off), (logs - means) / widths])

    def slopes(logs: Logs) -> Logs:
        derivative = softened_slope(weights * (given.predicted(logs) - target)) * weights
        return np.concatenate([derivative[:, None] * given.slopes(logs), np.diag(1 / widths)])

    first = np.array([log(start[k]) if k in start else m for k, m in zip(given.names, means, strict=True)])
    result = least_squares(residuals, first, jac=slopes, max_nfev=ROUNDS, x_scale="jac", ftol=ENOUGH)
    deviations = np.sqrt(np.diag(np.linalg.inv(result.jac.T @ result.jac)))
    return Found(
        dict(zip(given.names, np.exp(result.x).tolist(), strict=True)),
        dict(zip(given.names, deviations.tolist(), strict=True)),
    )


def depends(case: Case, coefficient: Knob) -> bool:
    """Whether a case's seconds depend on a coefficient."""
    return coefficient.owner == case.software or coefficient.owner == pace_of(case).owner


def says(cases: Sequence[Case], most: int) -> Logs:
    """Weights (cases,): lower for the records of a source that has more than `most`."""
    rows = Counter(case.origin.source for case in cases)
    return np.array([1 / sqrt(max(1.0, rows[case.origin.source] / most)) for case in cases])


def softened(off: Logs) -> Logs:
    """Residuals (cases,) whose squares grow linearly beyond the knee (`soft_l1`); priors stay quadratic."""
    return np.asarray(np.sign(off) * KNEE * np.sqrt(2 * (np.sqrt(1 + (off / KNEE) ** 2) - 1)))


def softened_slope(off: Logs) -> Logs:
    """Derivative (cases,) of the softened residuals."""
    root = np.sqrt(1 + (off / KNEE) ** 2)
    return np.asarray(np.sqrt((root + 1) / 2) / root)
