"""How far predictions are off where nobody calibrated: each source predicted from all others.

A framework or a device that only this source tells of is then what it is to us of any that we never saw: the generic
framework, the assumed pace. The interval of a framework is as wide as four fifths of its left-out records need. Only
coefficients are left out: the model's form and its constants were chosen with every source in view, and each fit starts
where the one of all sources ended.
"""

from collections.abc import Callable, Sequence

import numpy as np

from planner.calibrate.joint import Logs, fit, measured, predicted
from planner.calibrate.knobs import COMMON, Values
from planner.costs.compute.machine import Machine
from planner.published.case import Case

SHARE = 0.8  # of left-out records, within the interval
FEW = 10  # records: with fewer, a framework's interval is no narrower than the generic one's
OnSource = Callable[[int, int, str], None]  # done, of how many, which


def left_out(
    cases: Sequence[Case],
    machines: Sequence[Machine],
    start: Values,
    sources: Sequence[str] | None = None,
    on_source: OnSource = lambda done, of, source: None,
) -> tuple[Logs, Logs]:
    """Logarithms of predicted over measured [cases], each case by a fit without its source; as its own framework, and
    as the generic one. NaN for cases of sources that are not asked for. `start`: values to begin each fit from.
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
        generic = {knob: value for knob, value in others.values.items() if knob.owner not in software(cases)}
        own[here] = np.log(predicted(there, those, others.values)) - measured(there)
        common[here] = np.log(predicted(there, those, generic)) - measured(there)
    on_source(len(asked), len(asked), "")
    return own, common


def software(cases: Sequence[Case]) -> set[str]:
    """The frameworks there are, but for the generic one."""
    return {case.software for case in cases} - {COMMON}


def spreads(cases: Sequence[Case], own: Logs, common: Logs) -> dict[str, float]:
    """Of each framework: seconds·e^±spread holds four fifths of its left-out records; the generic one's, of all records."""
    known = np.isfinite(common)
    wide = half_width(common[known])
    found = {COMMON: wide}
    for name in sorted(software(cases)):
        rows = own[np.array([case.software == name for case in cases]) & np.isfinite(own)]
        found[name] = half_width(rows) if len(rows) >= FEW else max(wide, half_width(rows))
    return found


def half_width(off: Logs) -> float:
    """The least width that holds at least this share of the logarithms."""
    return float(np.quantile(np.abs(off), SHARE, method="inverted_cdf")) if len(off) else 0.0


def coverage(cases: Sequence[Case], own: Logs, common: Logs) -> float:
    """The share of left-out records within intervals that were set without their source, too."""
    names = np.array([case.origin.source for case in cases])
    inside, counted = 0, 0
    for source in sorted(set(names.tolist())):
        out = (names == source) & np.isfinite(own)
        widths = spreads([c for c, left in zip(cases, out, strict=True) if not left], own[~out], common[~out])
        for place in np.flatnonzero(out).tolist():
            inside += abs(own[place]) <= widths.get(cases[place].software, widths[COMMON])
            counted += 1
    return inside / counted if counted else 0.0
