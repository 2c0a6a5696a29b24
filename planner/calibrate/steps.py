"""Calibration on published step times: framework coefficients, sustained rates, and their errors, held out too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.calibrate.joint import fit, measured, predicted
from planner.calibrate.knobs import COMMON
from planner.calibrate.left_out import half_width, left_out, spreads
from planner.calibrate.rows import machines, telling
from planner.calibrate.software import Fit
from planner.errors import InputError
from planner.published.read import read_published

FEWEST = 10  # least records to fit
EACH = "each"
OnWork = Callable[[int, int, str], None]  # number done, total, what is being done


@dataclass(frozen=True, slots=True)
class Source:
    """Number of records and median time errors of one source: fitted with it and without it (None: not held out)."""

    name: str
    rows: int
    median_error: float
    left_out_error: float | None
    generic_error: float | None  # held out, with the generic framework's coefficients


def calibrate_published(folder: Path, without: Sequence[str], on_work: OnWork) -> Fit:
    """Fit the records of a folder; `without`: sources to hold out in turn, or `each`. Raises InputError."""
    on_work(0, 1, "reading records")
    cases = telling(read_published(folder)[0])
    sources = sorted({case.origin.source for case in cases})
    if len(cases) < FEWEST:
        what = f"{len(cases)} records state step times: at least {FEWEST} are needed"
        raise InputError(what, where=str(folder), fix="give a folder with more records")
    for name in without:
        if name not in (*sources, EACH):
            raise InputError(f"no source is called `{name}`", where="--leave-out", fix=f"one of {', '.join(sources)}")
    run_on = machines(cases)
    on_work(0, 1, f"fitting {len(cases)} records of {len(sources)} sources")
    coefficients = fit(cases, run_on)
    inside = np.log(predicted(cases, run_on, coefficients.values)) - measured(cases)
    held_out = sources if EACH in without else sorted(set(without))
    own_errors, generic_errors = left_out(
        cases, run_on, coefficients.values, held_out, lambda done, of, name: on_work(done, of, f"without {name}")
    )
    if EACH in without:
        widths = spreads(cases, own_errors, generic_errors)
    else:  # in-sample errors doubled: the ratio that held-out errors of many sources had
        widths = {name: 2 * half_width(inside) for name in (COMMON, *(case.software for case in cases))}
    return Fit(cases, coefficients, inside, own_errors, generic_errors, widths)


def by_source(made: Fit) -> list[Source]:
    """Median errors of each source, by name."""
    names = np.array([case.origin.source for case in made.cases])
    sources = []
    for name in sorted(set(names.tolist())):
        inside, outside, common = (each[names == name] for each in (made.inside, made.outside, made.common))
        sources.append(Source(name, len(inside), off(inside) or 0.0, off(outside), off(common)))
    return sources


def off(logs: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float | None:
    """Median relative error; None where nothing was left out."""
    known = logs[np.isfinite(logs)]
    return float(np.median(np.abs(np.exp(known) - 1))) if len(known) else None
