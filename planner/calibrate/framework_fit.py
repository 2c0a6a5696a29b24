"""Joint fit of framework coefficients and sustained device rates to published step times.

Least squares of log(predicted/measured seconds): each source has about the same total weight however many records it
has, outliers weigh less, and every coefficient has a Gaussian prior on its logarithm. All frameworks are fitted as one
first; then each by itself, with the common coefficients as its priors. Both by Gauss and Newton's method: seconds are
nearly powers of the coefficients, so that a few steps do, and fits without some of the cases are one more from there.

How much sources deviate is found beside the coefficients: one that is fitted well weighs more, and is fitted better
then. That gives the cost several valleys. All begin in one where sources deviate alike, and only then may weights
differ in full (graduated non-convexity, Blake and Zisserman 1987), so that where the search begins matters less.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from planner.calibrate.coefficients import (
    GENERIC,
    NOT_SHARED,
    SUSTAINED_PRECISIONS,
    CoefficientName,
    CoefficientValues,
    coefficients_of_cases,
    prior_of,
    with_coefficients,
    with_sustained_rates,
)
from planner.calibrate.linear_residuals import LeastResiduals, LinearResiduals, LogPriors, Logs
from planner.costs import MachineModel
from planner.costs.step import static_step_seconds
from planner.published import CaseGroup, PublishedCase, each_setup, group_cases, log_seconds, setup_shares
from planner.specs.framework.timing_coefficients import AT_MOST_ONE

# Least standard deviations of a source's log step times, one after the other, and the most.
LEAST_NOISE, MOST_NOISE = (0.1, 0.04), 0.4
DEVIATION = 1.4826  # standard deviation over median absolute deviation of a normal distribution
FULL_WEIGHT_RECORDS = 15  # records of a source that count in full; with more, its total weight stays the same
SAME_CHIP_CORRELATION = 0.7  # of the logarithms of what one chip sustains in two precisions
HELD_WIDTH = 1e-4  # prior width of what the second fit keeps from the first
MOST_STEPS = 12  # of Gauss and Newton's method
LONGEST_STEP = 0.7  # of a logarithm
CONVERGED = 0.2  # largest step at which it ends, in posterior standard deviations
UNDETERMINED_WIDTH = 0.9  # posterior over prior width, above which the records determine next to nothing
STEP = -1e-3  # finite difference of a logarithm: downwards, as some may not be above 0


@dataclass(frozen=True, slots=True)
class FrameworkProblem:
    """Cases in groups that are priced at once, their machines, and the coefficients to fit."""

    cases: Sequence[PublishedCase]
    groups: Sequence[CaseGroup]  # of every setup that a case may have had, by the indices of their cases
    machines: Sequence[MachineModel]  # one of each group
    coefficients: Sequence[CoefficientName]

    def linearised(self, logs: Logs) -> LinearResiduals:
        """Residuals and slopes at log coefficients, by differences; one vectorised pass for each group."""
        slopes, predicted = np.zeros((len(self.cases), len(self.coefficients))), np.zeros(len(self.cases))
        shares = setup_shares(self.cases)
        for group, machine in zip(self.groups, self.machines, strict=True):
            told = {*coefficients_of_cases([self.cases[index] for index in group.indices])}
            columns = [number for number, coefficient in enumerate(self.coefficients) if coefficient in told]
            shifted = np.tile(logs, (len(columns) + 1, 1))
            shifted[range(len(columns)), columns] += STEP
            log_seconds = self.group_logs(group, machine, shifted)
            share = shares[group.indices]
            each = share[:, None] * (log_seconds[:-1] - log_seconds[-1]).T / STEP
            np.add.at(slopes, np.ix_(group.indices, np.array(columns, dtype=np.int64)), each)
            np.add.at(predicted, group.indices, share * log_seconds[-1])
        return LinearResiduals(logs, predicted - measured_logs(self.cases), slopes)

    def group_logs(self, group: CaseGroup, machine: MachineModel, logs: Logs) -> Logs:
        """Log seconds (..., cases) of one group, for log coefficients (..., coefficients)."""
        values = dict(zip(self.coefficients, np.moveaxis(np.exp(logs), -1, 0)[..., None], strict=True))
        fitted_machine = machine_with(machine, group.first, values)
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

    def seconds_of(group: CaseGroup, owner: int) -> Logs:
        machine = machine_with(machines[owner], group.first, values)
        return np.asarray(static_step_seconds(group.first.module, group.setup, machine).seconds)

    return np.exp(log_seconds(cases, seconds_of)[0])


def machine_with(machine: MachineModel, case: PublishedCase, values: CoefficientValues) -> MachineModel:
    """The machine with the fitted coefficients of the case's framework and device."""
    timing = with_coefficients(machine.timing, case.software, values)
    return replace(machine, timing=timing, rates=with_sustained_rates(machine.rates, case.device, values))


@dataclass(frozen=True, slots=True)
class LinearisedFit:
    """The common problem, and that of each framework by itself, linear around what a fit to all cases found."""

    cases: Sequence[PublishedCase]
    machines: Sequence[MachineModel]
    problems: tuple[FrameworkProblem, FrameworkProblem]
    linear: tuple[LinearResiduals, LinearResiduals]
    full_weight_records: int

    def fitted_to(self, chosen: NDArray[np.bool_] | None = None) -> FittedCoefficients:
        """The coefficients of a fit to some of the cases (cases,; None: to all), of those that they depend on."""
        chosen = np.ones(len(self.cases), dtype=np.bool_) if chosen is None else chosen
        values: dict[CoefficientName, float] = {}
        deviations: dict[CoefficientName, float] = {}
        for problem, linear in zip(self.problems, self.linear, strict=True):
            cases = [case for case, is_chosen in zip(problem.cases, chosen, strict=True) if is_chosen]
            priors = centred_priors(problem.coefficients, values)
            found = least_of_own_weights(linear.of_cases(chosen), cases, priors, self.full_weight_records)
            known = {*coefficients_of_cases(cases)} - values.keys()
            for name, log_value, variance in zip(
                problem.coefficients, found.logs.tolist(), np.diag(found.covariance).tolist(), strict=True
            ):
                if name in known:
                    values[name], deviations[name] = exp(log_value), sqrt(variance)
        return FittedCoefficients(values, deviations)


def linearised_fit(
    cases: Sequence[PublishedCase], machines: Sequence[MachineModel], full_weight_records: int = FULL_WEIGHT_RECORDS
) -> LinearisedFit:
    """A fit of common coefficients and sustained rates to all cases, then of each framework's own near the common ones,
    from which fits to some cases follow without another pricing.

    The second fit keeps the sustained rates, so that the common coefficients describe a framework without records.
    `machines` has one of each case; `full_weight_records`: records of one source that count in full.
    """
    pooled = build_problem([replace(case, software=GENERIC) for case in cases], machines, cases)
    separate = build_problem(cases, machines, cases)
    together = solved(pooled, centred_priors(pooled.coefficients, {}), full_weight_records, LEAST_NOISE)
    common = dict(zip(pooled.coefficients, np.exp(together.point).tolist(), strict=True))
    each = solved(separate, centred_priors(separate.coefficients, common), full_weight_records, LEAST_NOISE[-1:])
    return LinearisedFit(cases, machines, (pooled, separate), (together, each), full_weight_records)


def solved(given: FrameworkProblem, priors: LogPriors, most: int, least_noise: Sequence[float]) -> LinearResiduals:
    """The residuals around the coefficients that make them least, with one of these least deviations after another."""
    linear = given.linearised(priors.means)
    for least in least_noise:
        for _ in range(MOST_STEPS):
            found = linear.least(case_weights(given.cases, linear.residuals, most, least), priors)
            step = found.logs - linear.point
            linear = given.linearised(linear.point + np.clip(step, -LONGEST_STEP, LONGEST_STEP))
            if np.max(np.abs(step) / np.sqrt(np.diag(found.covariance)), initial=0.0) < CONVERGED:
                break
    return linear


def least_of_own_weights(
    linear: LinearResiduals, cases: Sequence[PublishedCase], priors: LogPriors, most: int
) -> LeastResiduals:
    """The least of these residuals, weighed as they leave the sources of these cases: another source's may have weighed
    otherwise.
    """
    logs = linear.point
    for _ in range(MOST_STEPS):
        found = linear.least(case_weights(cases, linear.at(logs), most), priors)
        step, logs = found.logs - logs, found.logs
        if np.max(np.abs(step) / np.sqrt(np.diag(found.covariance)), initial=0.0) < CONVERGED / 10.0:
            break
    return found


def case_weights(
    cases: Sequence[PublishedCase], residuals: Logs, most: int, least_noise: float = LEAST_NOISE[-1]
) -> Logs:
    """One over the standard deviation of each case's residual (cases,), as its source's residuals show it; and less for
    the cases of a source that has more than `most`.

    Some sources state a variation of tens of percent, others measured something else than they state; this keeps them
    from outweighing the sources that agree with the rest.
    """
    sources = np.array([case.origin.source for case in cases])
    weights = np.zeros(len(residuals))
    for source in set(sources.tolist()):
        own = sources == source
        noise = np.clip(np.median(np.abs(residuals[own])) * DEVIATION, least_noise, MOST_NOISE)
        weights[own] = 1.0 / noise / sqrt(max(1.0, own.sum() / most))
    return weights


def measured_logs(cases: Sequence[PublishedCase]) -> Logs:
    """Logarithms of measured seconds (cases,)."""
    return np.log([case.seconds or 1.0 for case in cases])


def build_problem(
    cases: Sequence[PublishedCase], machines: Sequence[MachineModel], grouped_as: Sequence[PublishedCase]
) -> FrameworkProblem:
    """The problem of these cases; `grouped_as`: the same cases with their true frameworks."""
    every, owners = each_setup(grouped_as)
    groups = [replace(group, indices=owners[group.indices]) for group in group_cases(every)]
    firsts = [replace(group, first=replace(group.first, software=cases[group.indices[0]].software)) for group in groups]
    group_machines = [machines[group.indices[0]] for group in groups]
    return FrameworkProblem(cases, firsts, group_machines, coefficients_of_cases(cases))


def centred_priors(names: Sequence[CoefficientName], common: CoefficientValues) -> LogPriors:
    """Priors of these coefficients: a framework's are centred on the common ones where there are some, and sustained
    rates that are known stay.
    """
    means, widths = np.zeros(len(names)), np.zeros(len(names))
    most = np.array([0.0 if coefficient.name in AT_MOST_ONE else np.inf for coefficient in names])
    for place, coefficient in enumerate(names):
        own, held = prior_of(coefficient), common.get(coefficient)
        shared = None if coefficient.name in NOT_SHARED else common.get(CoefficientName(GENERIC, coefficient.name))
        means[place] = log(held or shared or own.value)
        widths[place] = own.width if held is None else HELD_WIDTH
    return LogPriors(means, prior_covariance(names, widths), most)


def prior_covariance(names: Sequence[CoefficientName], widths: Logs) -> Logs:
    """Covariance (coefficients, coefficients): rates that one chip sustains share its power and its clocks."""
    paced = np.array(
        [width > HELD_WIDTH and name.name in SUSTAINED_PRECISIONS for name, width in zip(names, widths, strict=True)]
    )
    owners = np.array([coefficient.owner for coefficient in names])
    together = paced[:, None] & paced & (owners[:, None] == owners) & ~np.eye(len(names), dtype=np.bool_)
    covariance: Logs = np.outer(widths, widths) * (np.eye(len(names)) + SAME_CHIP_CORRELATION * together)
    return covariance
