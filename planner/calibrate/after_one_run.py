"""How right published records of a source are predicted after one of its runs, whichever it is."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.calibrate.coefficients import CoefficientValues, sustained_rate_of
from planner.calibrate.framework_fit import machine_with, measured_logs
from planner.calibrate.left_out import left_out_values
from planner.calibrate.one_run import (
    STEP,
    SUSTAINED,
    WIDTHS,
    Logs,
    errors_after_one_run,
    shifted_rates,
    shifted_timing,
)
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.costs import MachineModel
from planner.costs.step import static_step_seconds
from planner.published import (
    CaseGroup,
    PublishedCase,
    each_setup,
    group_cases,
    machines_as_shipped,
    setup_shares,
)

LEAST_RECORDS = 5  # of a source: with fewer there is little to predict
NAMES = [name for name in WIDTHS if name != SUSTAINED]


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
    chips = sorted({sustained_rate_of(case).owner for case in cases})
    machines = machines_as_shipped(cases) if values is None else machines_of_cases(cases)
    every, owners = each_setup(cases)
    shares = setup_shares(cases)
    predicted, slopes = np.zeros(len(cases)), np.zeros((len(cases), len(NAMES) + len(chips)))
    for group in group_cases(every):
        own = owners[group.indices]
        machine = machines[own[0]]
        machine = machine if values is None else machine_with(machine, group.first, values)
        logs = shares[own] * shifted_logs(group, machine)
        columns = np.array([*range(len(NAMES)), len(NAMES) + chips.index(sustained_rate_of(group.first).owner)])
        np.add.at(slopes, np.ix_(own, columns), (logs[:-1] - logs[-1]).T / STEP)
        np.add.at(predicted, own, logs[-1])
    widths = np.array([WIDTHS[name] for name in (*NAMES, *[SUSTAINED] * len(chips))])
    return errors_after_one_run(slopes, widths, predicted - measured_logs(cases))


def shifted_logs(group: CaseGroup, machine: MachineModel) -> Logs:
    """Log seconds (coefficients + 1, cases) of a group with each coefficient changed by itself, and last with none."""
    shifts = dict(zip((*NAMES, SUSTAINED), STEP * np.eye(len(WIDTHS) + 1)[:-1][..., None], strict=True))
    timing, rates = shifted_timing(machine.timing, shifts), shifted_rates(machine.rates, shifts)
    shifted = replace(machine, timing=timing, rates=rates)
    return np.asarray(np.log(static_step_seconds(group.first.module, group.setup, shifted).seconds))
