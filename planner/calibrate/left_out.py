"""Held-out errors: every source predicted by a fit to all other sources.

A framework or device that only the held-out source has is then predicted as an unknown one: by the generic framework,
or at the assumed sustained rate. A framework's interval is as wide as four fifths of its held-out records need. Only
coefficients are held out: the form of the model and its constants were chosen with every source in view, and each fit
starts from the coefficients of the fit to all sources.
"""

from collections.abc import Callable, Sequence

import numpy as np

from planner.calibrate.joint import Logs, fit, measured, predicted
from planner.calibrate.knobs import COMMON, Values
from planner.costs.compute.machine import Machine
from planner.published.case import Case

SHARE = 0.8  # of held-out records within the interval
FEW = 10  # records: with fewer, a framework's interval is no narrower than the generic one's
OnSource = Callable[[int, int, str], None]  # number done, total, name of the source


def left_out(
    cases: Sequence[Case],
    machines: Sequence[Machine],
    start: Values,
    sources: Sequence[str] | None = None,
    on_source: OnSource = lambda done, of, source: None,
) -> tuple[Logs, Logs]:
    """Log errors (cases,) by a fit without the case's source, with its framework's coefficients and with generic ones.

    They are NaN for cases of sources that are not in `sources` (None: all). `start`: coefficients to begin each fit at.
    """
    asked = sorted({case.origin.source for case in cases}) if sources is None else list(sources)
    own, common = np.full(len(cases), np.nan), np.full(len(cases), np.nan)
    for done, source in enumerate(asked):
        on_source(done, len(asked), source)
        here = [n for n, case in enumerate(cases) if case.origin.source == source]
        rest = [n for n, case in enumerate(cases) if case.origin.source != source]
        if not here or not rest:
            continue
        others = fit([cases[n] for n in rest], [machines[n] for n in rest], start)
        there, those = [cases[n] for n in here], [machines[n] for n in here]
        generic = {
            coefficient: value
            for coefficient, value in others.values.items()
            if coefficient.owner not in software(cases)
        }
        own[here] = np.log(predicted(there, those, others.values)) - measured(there)
        common[here] = np.log(predicted(there, those, generic)) - measured(there)
    on_source(len(asked), len(asked), "")
    return own, common


def software(cases: Sequence[Case]) -> set[str]:
    """The frameworks of these cases, without the generic one."""
    return {case.software for case in cases} - {COMMON}


def spreads(cases: Sequence[Case], own: Logs, common: Logs) -> dict[str, float]:
    """Spread of each framework: seconds·e^±spread holds four fifths of its held-out records (generic: of all)."""
    known = np.isfinite(common)
    wide = half_width(common[known])
    found = {COMMON: wide}
    for name in sorted(software(cases)):
        rows = own[np.array([case.software == name for case in cases]) & np.isfinite(own)]
        found[name] = half_width(rows) if len(rows) >= FEW else max(wide, half_width(rows))
    return found


def half_width(off: Logs) -> float:
    """The least half-width that holds at least four fifths of these log errors."""
    return float(np.quantile(np.abs(off), SHARE, method="inverted_cdf")) if len(off) else 0.0
