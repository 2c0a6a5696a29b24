"""Calibration on published step times: framework coefficients, sustained rates, and their errors, held out too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.calibrate.coefficients import GENERIC
from planner.calibrate.fit_files import PublishedFit
from planner.calibrate.framework_fit import linearised_fit, measured_logs, predicted_seconds
from planner.calibrate.held_out import half_width, held_out_errors, interval_spreads
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.errors import InputError
from planner.published import read_published

LEAST_RECORDS = 10  # least records to fit
EACH_SOURCE = "each"
OnWork = Callable[[int, int, str], None]  # number done, total, what is being done


@dataclass(frozen=True, slots=True)
class SourceErrors:
    """Number of records and median time errors of one source: fitted with it and without it (None: not held out)."""

    name: str
    records: int
    median_error: float
    left_out_error: float | None
    generic_error: float | None  # held out, with the generic framework's coefficients


def calibrate_published(folder: Path, leave_out: Sequence[str], on_work: OnWork) -> PublishedFit:
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
    coefficients = linearised.fitted_to(np.ones(len(cases), dtype=np.bool_))
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
