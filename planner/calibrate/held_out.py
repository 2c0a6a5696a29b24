"""Held-out errors: every source predicted by a fit to all other sources.

A framework or device that only the held-out source has is then predicted as an unknown one: by the generic framework,
or at the assumed sustained rate. A framework's interval is as wide as four fifths of its held-out records need. Only
coefficients are held out: the form of the model and its constants were chosen with every source in view; and each fit
is one step from the fit to all sources.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.calibrate.coefficients import GENERIC, CoefficientValues
from planner.calibrate.framework_fit import LinearisedFit, measured_logs, predicted_seconds
from planner.calibrate.linear_residuals import Logs
from planner.published import PublishedCase

SHARE = 0.8  # of held-out records within the interval
FEW_RECORDS = 10  # records: with fewer, a framework's interval is no narrower than the generic one's
OnSource = Callable[[int, int, str], None]  # number done, total, name of the source


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
    on_source: OnSource = lambda done, of, source: None,
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
