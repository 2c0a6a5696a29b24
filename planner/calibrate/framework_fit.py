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

from planner.calibrate.coefficients import (
    GENERIC,
    NOT_SHARED,
    SUSTAINED_PRECISIONS,
    CoefficientName,
    CoefficientValues,
    Prior,
    coefficients_of_cases,
    prior_of,
    sustained_rate_of,
    with_coefficients,
    with_sustained_rates,
)
from planner.costs import MachineModel
from planner.costs.step import static_step_seconds
from planner.extras import require_scipy
from planner.published import CaseGroup, PublishedCase, group_cases

NOISE = 0.04, 0.4  # bounds on the standard deviation of a source's log step times
DEVIATION = 1.4826  # standard deviation over median absolute deviation of a normal distribution
FULL_WEIGHT_RECORDS = 15  # records of a source that count in full; with more, its total weight stays the same
KNEE = 3.0  # standard deviations beyond which the cost of a residual grows linearly
NOISE_REFITS = 2  # each with the noise that the previous fit leaves
MOST_EVALUATIONS = 12  # most evaluations of a solve
COST_TOLERANCE = 1e-4  # relative decrease of the cost at which a solve ends
UNDETERMINED_WIDTH = 0.9  # posterior over prior width, above which the records determine next to nothing
STEP = 1e-3  # finite difference of a logarithm
Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FrameworkProblem:
    """Cases in groups that are priced at once, their machines, and the coefficients to fit."""

    cases: Sequence[PublishedCase]
    groups: Sequence[CaseGroup]
    machines: Sequence[MachineModel]  # one of each group
    coefficients: Sequence[CoefficientName]
    priors: Sequence[Prior]
    fixed: CoefficientValues  # coefficients that are not fitted
    full_weight_records: int  # records of a source that count in full

    def predicted_logs(self, logs: Logs) -> Logs:
        """Logarithms of predicted seconds (cases,) for log coefficients (coefficients,)."""
        result = np.zeros(len(self.cases))
        for group, machine in zip(self.groups, self.machines, strict=True):
            result[group.indices] = self.group_logs(group, machine, logs)
        return result

    def jacobian(self, logs: Logs) -> Logs:
        """Jacobian (cases, coefficients) of `predicted_logs` by differences; one vectorised pass for each group."""
        jacobian = np.zeros((len(self.cases), len(self.coefficients)))
        for group, machine in zip(self.groups, self.machines, strict=True):
            columns = [
                number for number, coefficient in enumerate(self.coefficients) if depends_on(group.first, coefficient)
            ]
            shifted = np.tile(logs, (len(columns) + 1, 1))
            shifted[range(len(columns)), columns] += STEP
            log_seconds = self.group_logs(group, machine, shifted)
            jacobian[group.indices[:, None], columns] = (log_seconds[:-1] - log_seconds[-1]).T / STEP
        return jacobian

    def group_logs(self, group: CaseGroup, machine: MachineModel, logs: Logs) -> Logs:
        """Log seconds (..., cases) of one group, for log coefficients (..., coefficients)."""
        values = dict(zip(self.coefficients, np.moveaxis(np.exp(logs), -1, 0)[..., None], strict=True))
        fitted_machine = machine_with(machine, group.first, {**self.fixed, **values})
        return np.asarray(np.log(static_step_seconds(group.first.module, group.setup, fitted_machine).seconds))


@dataclass(frozen=True, slots=True)
class FittedCoefficients:
    """Fitted coefficients, and the posterior standard deviation of each one's logarithm."""

    values: dict[CoefficientName, float]
    deviations: dict[CoefficientName, float]

    def stays_at_prior(self, coefficient: CoefficientName) -> bool:
        """Whether the records determine next to nothing of it, so that it stays near its prior."""
        return (
            self.deviations.get(coefficient, prior_of(coefficient).width)
            > UNDETERMINED_WIDTH * prior_of(coefficient).width
        )


def predicted_seconds(
    cases: Sequence[PublishedCase], machines: Sequence[MachineModel], values: CoefficientValues
) -> Logs:
    """Predicted seconds (cases,); a framework without coefficients of its own takes the common ones."""
    seconds = np.zeros(len(cases))
    for group in group_cases(cases):
        machine = machine_with(machines[group.indices[0]], group.first, values)
        seconds[group.indices] = static_step_seconds(group.first.module, group.setup, machine).seconds
    return seconds


def machine_with(machine: MachineModel, case: PublishedCase, values: CoefficientValues) -> MachineModel:
    """The machine with the fitted coefficients of the case's framework and device."""
    owner = case.software if any(coefficient.owner == case.software for coefficient in values) else GENERIC
    timing = with_coefficients(machine.timing, owner, values)
    return replace(machine, timing=timing, rates=with_sustained_rates(machine.rates, case.device, values))


def fit_frameworks(
    cases: Sequence[PublishedCase],
    machines: Sequence[MachineModel],
    start: CoefficientValues | None = None,
    full_weight_records: int = FULL_WEIGHT_RECORDS,
) -> FittedCoefficients:
    """Fit common coefficients and sustained rates to all cases, then each framework's own near the common ones.

    The second fit keeps the sustained rates, so that the common coefficients describe a framework without records.
    `machines` has one of each case; `full_weight_records`: records of one source that count in full.
    """
    pooled = build_problem(
        [replace(case, software=GENERIC) for case in cases], machines, {}, cases, full_weight_records
    )
    common = solve_least_squares(pooled, start or {}, source_noise(pooled, {}))
    separate = build_problem(cases, machines, common.values, cases, full_weight_records)
    fitted = common
    for _ in range(NOISE_REFITS):
        own = solve_least_squares(separate, {**(start or {}), **fitted.values}, source_noise(separate, fitted.values))
        fitted = FittedCoefficients(common.values | own.values, common.deviations | own.deviations)
    return fitted


def source_noise(given: FrameworkProblem, found: CoefficientValues) -> Logs:
    """Standard deviation of each case's log residual (cases,), estimated for its source at these coefficients.

    Some sources state a variation of tens of percent, others measured something else than they state; this keeps them
    from outweighing the sources that agree with the rest.
    """
    logs = np.array([log(found.get(k, p.value)) for k, p in zip(given.coefficients, given.priors, strict=True)])
    residuals = given.predicted_logs(logs) - measured_logs(given.cases)
    sources = np.array([case.origin.source for case in given.cases])
    spread = np.zeros(len(residuals))
    for source in set(sources.tolist()):
        of_source = residuals[sources == source]
        spread[sources == source] = np.clip(np.median(np.abs(of_source)) * DEVIATION, *NOISE)
    return spread


def measured_logs(cases: Sequence[PublishedCase]) -> Logs:
    """Logarithms of measured seconds (cases,)."""
    return np.log([case.seconds or 1.0 for case in cases])


def build_problem(
    cases: Sequence[PublishedCase],
    machines: Sequence[MachineModel],
    common: CoefficientValues,
    grouped_as: Sequence[PublishedCase],
    most: int,
) -> FrameworkProblem:
    """The problem of these cases with `common` fixed; `grouped_as`: the same cases with their true frameworks."""
    groups = group_cases(grouped_as)
    names = [
        coefficient
        for coefficient in coefficients_of_cases(cases)
        if not (common and coefficient.name in SUSTAINED_PRECISIONS)
    ]
    firsts = [replace(group, first=cases[group.indices[0]]) for group in groups]
    group_machines = [machines[group.indices[0]] for group in groups]
    return FrameworkProblem(cases, firsts, group_machines, names, centred_priors(names, common), common, most)


def centred_priors(names: Sequence[CoefficientName], common: CoefficientValues) -> list[Prior]:
    """Priors of these coefficients; a framework's are centred on the common coefficients where there are some."""
    centred = []
    for coefficient in names:
        shared = None if coefficient.name in NOT_SHARED else common.get(CoefficientName(GENERIC, coefficient.name))
        own = prior_of(coefficient)
        centred.append(Prior(shared, own.width) if shared is not None else own)
    return centred


def solve_least_squares(given: FrameworkProblem, start: CoefficientValues, spread: Logs) -> FittedCoefficients:
    """Coefficients of the least loss; `spread` (cases,): standard deviations of the residuals. Raises InputError."""
    require_scipy()
    from scipy.optimize import least_squares

    target = measured_logs(given.cases)
    weights = source_weights(given.cases, given.full_weight_records) / spread
    means = np.array([log(each.value) for each in given.priors])
    widths = np.array([each.width for each in given.priors])

    def residuals(logs: Logs) -> Logs:
        off = weights * (given.predicted_logs(logs) - target)
        return np.concatenate([softened_residuals(off), (logs - means) / widths])

    def slopes(logs: Logs) -> Logs:
        derivative = softened_slope(weights * (given.predicted_logs(logs) - target)) * weights
        return np.concatenate([derivative[:, None] * given.jacobian(logs), np.diag(1 / widths)])

    first = np.array([log(start[k]) if k in start else m for k, m in zip(given.coefficients, means, strict=True)])
    result = least_squares(residuals, first, jac=slopes, max_nfev=MOST_EVALUATIONS, x_scale="jac", ftol=COST_TOLERANCE)
    deviations = np.sqrt(np.diag(np.linalg.inv(result.jac.T @ result.jac)))
    return FittedCoefficients(
        dict(zip(given.coefficients, np.exp(result.x).tolist(), strict=True)),
        dict(zip(given.coefficients, deviations.tolist(), strict=True)),
    )


def depends_on(case: PublishedCase, coefficient: CoefficientName) -> bool:
    """Whether a case's seconds depend on a coefficient."""
    return coefficient.owner == case.software or coefficient.owner == sustained_rate_of(case).owner


def source_weights(cases: Sequence[PublishedCase], most: int) -> Logs:
    """Weights (cases,): lower for the records of a source that has more than `full_weight_records`."""
    records = Counter(case.origin.source for case in cases)
    return np.array([1 / sqrt(max(1.0, records[case.origin.source] / most)) for case in cases])


def softened_residuals(off: Logs) -> Logs:
    """Residuals (cases,) whose squares grow linearly beyond the knee (`soft_l1`); priors stay quadratic."""
    return np.asarray(np.sign(off) * KNEE * np.sqrt(2 * (np.sqrt(1 + (off / KNEE) ** 2) - 1)))


def softened_slope(off: Logs) -> Logs:
    """Derivative (cases,) of the softened residuals."""
    root = np.sqrt(1 + (off / KNEE) ** 2)
    return np.asarray(np.sqrt((root + 1) / 2) / root)
