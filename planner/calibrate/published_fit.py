"""Calibration on published step times: framework coefficients, sustained rates, and their errors, held out too.

Held out, every source is predicted by a fit to all other sources. A framework or device that only that source has is
then predicted as an unknown one: by the generic framework, or at the assumed sustained rate. A framework's interval is
as wide as four fifths of its held-out records need. Only coefficients are held out: the form of the model and its
constants were chosen with every source in view; and each fit is one step from the fit to all sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner.calibrate.coefficients import GENERIC, CoefficientValues
from planner.calibrate.fit_files import PublishedFit
from planner.calibrate.framework_fit import LinearisedFit, linearised_fit, measured_logs, predicted_seconds
from planner.calibrate.linear_residuals import Logs
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.published import PublishedCase, read_published

SHARE = 0.8  # of held-out records within the interval
FEW_RECORDS = 10  # records: with fewer, a framework's interval is no narrower than the generic one's
LEAST_RECORDS = 10  # least records to fit
EACH_SOURCE = "each"


class HeldOutErrors(NamedTuple):
    """Log errors (cases,) by a fit without the case's source, with its framework's coefficients and with generic ones;
    NaN where no fit left the source out. And the coefficients of the fit without each source.
    """

    own: Logs
    generic: Logs
    values: dict[str, CoefficientValues]


def held_out_errors(
    fit: LinearisedFit,
    sources: Sequence[str] | None = None,
    on_source: OnProgress = silent,
) -> HeldOutErrors:
    """Every source of `sources` (None: all) predicted by a fit to the others."""
    cases, of_case = fit.cases, np.array([case.origin.source for case in fit.cases])
    asked = sorted({*of_case.tolist()}) if sources is None else list(sources)
    fitted: dict[str, CoefficientValues] = {}
    own_errors, generic_errors = np.full(len(cases), np.nan), np.full(len(cases), np.nan)
    for done, source in enumerate(asked):
        on_source(done, len(asked), source)
        inside = of_case == source
        if not inside.any() or inside.all():
            continue
        others = fitted[source] = fit.fitted_to(~inside).values
        held_out = [(case, machine) for case, machine, own in zip(cases, fit.machines, inside, strict=True) if own]
        held_out_cases, held_out_machines = zip(*held_out, strict=True)
        generic = {
            coefficient: value
            for coefficient, value in others.items()
            if coefficient.owner not in named_frameworks(cases)
        }
        target = measured_logs(held_out_cases)
        own_errors[inside] = np.log(predicted_seconds(held_out_cases, held_out_machines, others)) - target
        generic_errors[inside] = np.log(predicted_seconds(held_out_cases, held_out_machines, generic)) - target
    on_source(len(asked), len(asked), "")
    return HeldOutErrors(own_errors, generic_errors, fitted)


def named_frameworks(cases: Sequence[PublishedCase]) -> set[str]:
    """The frameworks of these cases, without the generic one."""
    return {case.software for case in cases} - {GENERIC}


def interval_spreads(cases: Sequence[PublishedCase], own: Logs, common: Logs) -> dict[str, float]:
    """Spread of each framework: seconds·e^±spread holds four fifths of its held-out records (generic: of all)."""
    known = np.isfinite(common)
    generic_width = half_width(common[known])
    widths = {GENERIC: generic_width}
    for name in sorted(named_frameworks(cases)):
        errors = own[np.array([case.software == name for case in cases]) & np.isfinite(own)]
        widths[name] = half_width(errors) if len(errors) >= FEW_RECORDS else max(generic_width, half_width(errors))
    return widths


def half_width(off: Logs) -> float:
    """The least half-width that holds at least four fifths of these log errors."""
    return float(np.quantile(np.abs(off), SHARE, method="inverted_cdf")) if len(off) else 0.0


@dataclass(frozen=True, slots=True)
class SourceErrors:
    """Number of records and median time errors of one source: fitted with it and without it (None: not held out)."""

    name: str
    records: int
    median_error: float
    left_out_error: float | None
    generic_error: float | None  # held out, with the generic framework's coefficients


def calibrate_published(folder: Path, leave_out: Sequence[str], on_work: OnProgress) -> PublishedFit:
    """Fit the records of a folder; `leave_out`: sources to hold out in turn, or `each`. Raises InputError."""
    on_work(0, 1, "reading records")
    cases = timed_cases(read_published(folder)[0])
    sources = sorted({case.origin.source for case in cases})
    if len(cases) < LEAST_RECORDS:
        what = f"{len(cases)} records state step times: at least {LEAST_RECORDS} are needed"
        raise InputError(what, where=str(folder), fix="give a folder with more records")
    for name in leave_out:
        if name not in (*sources, EACH_SOURCE):
            raise InputError(f"no source is called `{name}`", where="--leave-out", fix=f"one of {', '.join(sources)}")
    run_on = machines_of_cases(cases)
    on_work(0, 1, f"fitting {len(cases)} records of {len(sources)} sources")
    linearised = linearised_fit(cases, run_on)
    coefficients = linearised.fitted_to()
    inside = np.log(predicted_seconds(cases, run_on, coefficients.values)) - measured_logs(cases)
    held_out = sources if EACH_SOURCE in leave_out else sorted(set(leave_out))
    left_out = held_out_errors(linearised, held_out, lambda done, of, name: on_work(done, of, f"without {name}"))
    if EACH_SOURCE in leave_out:
        widths = interval_spreads(cases, left_out.own, left_out.generic)
    else:  # in-sample errors doubled: the ratio that held-out errors of many sources had
        widths = {name: 2 * half_width(inside) for name in (GENERIC, *(case.software for case in cases))}
    return PublishedFit(cases, coefficients, inside, left_out.own, left_out.generic, widths, left_out.values)


def errors_by_source(made: PublishedFit) -> list[SourceErrors]:
    """Median errors of each source, by name."""
    names = np.array([case.origin.source for case in made.cases])
    sources = []
    for name in sorted(set(names.tolist())):
        inside, outside, common = (
            each[names == name] for each in (made.fitted_logs, made.held_out_logs, made.generic_logs)
        )
        sources.append(
            SourceErrors(
                name,
                len(inside),
                median_relative_error(inside) or 0.0,
                median_relative_error(outside),
                median_relative_error(common),
            )
        )
    return sources


def median_relative_error(logs: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float | None:
    """Median relative error; None where nothing was left out."""
    known = logs[np.isfinite(logs)]
    return float(np.median(np.abs(np.exp(known) - 1))) if len(known) else None
