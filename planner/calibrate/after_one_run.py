"""How right published records of a source are predicted after one of its runs, whichever it is."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import log2

import numpy as np

from planner.calibrate.coefficients import CoefficientValues
from planner.calibrate.fit_files import peak_tflops, run_of_case
from planner.calibrate.framework_fit import machine_with, measured_logs
from planner.calibrate.left_out import left_out_values
from planner.calibrate.linear_residuals import Logs
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.costs import MachineModel
from planner.costs.step import static_step_seconds
from planner.published import (
    CaseGroup,
    PublishedCase,
    each_setup,
    group_cases,
    machine_as_shipped,
    setup_shares,
)
from planner.specs.framework.own_runs import STEP, UNEXPLAINED, correlation, shifted_timing
from planner.specs.framework.timing_coefficients import WIDTHS

LEAST_RECORDS = 5  # of a source: with fewer there is little to predict


def median_after_one_run(cases: Sequence[PublishedCase]) -> dict[str, float]:
    """The median error of each source's other records after each one of them, by its name; of sources with at least
    five. Raises InputError for a shipped file that cannot be read.
    """
    timed, found = timed_cases(cases), dict[str, float]()
    for source in sorted({case.origin.source for case in timed}):
        own = [case for case in timed if case.origin.source == source]
        if len(own) >= LEAST_RECORDS:
            after = source_errors(own, left_out_values(source))
            found[source] = float(np.nanmedian(np.abs(np.exp(after) - 1.0)))
    return found


def source_errors(cases: Sequence[PublishedCase], values: CoefficientValues | None) -> Logs:
    """Log errors (cases, cases) after one run each; `values`: of a fit without these cases, None: as shipped."""
    machines = [*map(machine_as_shipped, cases)] if values is None else machines_of_cases(cases)
    every, owners = each_setup(cases)
    shares = setup_shares(cases)
    predicted, slopes = np.zeros(len(cases)), np.zeros((len(cases), len(WIDTHS)))
    for group in group_cases(every):
        own = owners[group.indices]
        machine = machines[own[0]]
        machine = machine if values is None else machine_with(machine, group.first, values)
        logs = shares[own] * shifted_logs(group, machine)
        np.add.at(slopes, own, (logs[:-1] - logs[-1]).T / STEP)
        np.add.at(predicted, own, logs[-1])
    return errors_after_one_run(slopes, alike(cases), predicted - measured_logs(cases))


def shifted_logs(group: CaseGroup, machine: MachineModel) -> Logs:
    """Log seconds (coefficients + 1, cases) of a group with each coefficient changed by itself, and last with none."""
    shifts = dict(zip(WIDTHS, STEP * np.eye(len(WIDTHS) + 1)[:-1][..., None], strict=True))
    shifted = replace(machine, timing=shifted_timing(machine.timing, shifts))
    return np.asarray(np.log(static_step_seconds(group.first.module, group.setup, shifted).seconds))


def alike(cases: Sequence[PublishedCase]) -> Logs:
    """How alike the coefficients of two cases deviate (cases, cases): not at all in other frameworks, whose files know
    nothing of each other's runs.
    """
    runs = [run_of_case(case) for case in cases]
    places = {run: place for place, run in enumerate(dict.fromkeys(runs))}
    peaks = {name: log2(peak_tflops(name)) for name in {run.device for run in runs}}
    found = np.zeros((len(places), len(places)))
    for one, other in combinations_with_replacement(places, 2):
        if one.software == other.software:
            same = correlation(one, other, abs(peaks[one.device] - peaks[other.device]))
            found[places[one], places[other]] = found[places[other], places[one]] = same
    own = [places[run] for run in runs]
    return found[np.ix_(own, own)]


def errors_after_one_run(slopes: Logs, alike: Logs, log_errors: Logs) -> Logs:
    """Log errors (runs, runs) after one run each: row i has those of all runs after run i, NaN in its own place.
    `slopes` (runs, coefficients), in the order of their widths; `alike` (runs, runs); `log_errors` (runs,) before.
    """
    joint = (slopes * np.array([*WIDTHS.values()]) ** 2) @ slopes.T * alike
    gain = joint / (np.diag(joint)[:, None] + UNEXPLAINED**2)
    after: Logs = log_errors[None, :] - gain * log_errors[:, None]
    np.fill_diagonal(after, np.nan)
    return after
