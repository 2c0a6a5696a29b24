"""Coefficients of the fits without one source each, and step seconds that they predict for that source.

Shipped in `profiles/left_out.yaml`, so that the ledger of published records need not fit anything to say what the
error is on a source that no coefficient has seen.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from planner import files
from planner.calibrate.coefficients import GENERIC, CoefficientName, CoefficientValues, sustained_rate_of
from planner.calibrate.framework_fit import predicted_seconds
from planner.calibrate.timed_cases import machines_of_cases
from planner.published import CasePrediction, PublishedCase
from planner.specs.base import Positive, Spec
from planner.specs.library import shipped_folder
from planner.units import four_digits

FILE = "left_out.yaml"


class LeftOutCoefficients(Spec, kw_only=True):
    """A file `profiles/left_out.yaml`: source → framework or device → coefficient or dtype → value."""

    FORMAT: ClassVar[str] = "planner.left_out/1"
    format: str
    date: str
    sources: dict[str, dict[str, dict[str, Positive]]]


def left_out_file(
    cases: Sequence[PublishedCase], values: Mapping[str, CoefficientValues], date: str
) -> LeftOutCoefficients:
    """The file of these fits by source, of each what its cases need."""
    sources: dict[str, dict[str, dict[str, float]]] = {}
    for source, fitted in sorted(values.items()):
        own = [case for case in cases if case.origin.source == source]
        owners = {GENERIC, *(case.software for case in own), *(sustained_rate_of(case).owner for case in own)}
        of_owner: dict[str, dict[str, float]] = defaultdict(dict)
        for coefficient, value in sorted(fitted.items()):
            if coefficient.owner in owners:
                of_owner[coefficient.owner][coefficient.name] = four_digits(value)
        sources[source] = dict(of_owner)
    return LeftOutCoefficients(format=LeftOutCoefficients.FORMAT, date=date, sources=sources)


@lru_cache(maxsize=1)
def shipped_coefficients() -> LeftOutCoefficients:
    """The shipped file. Raises InputError."""
    return files.read(shipped_folder() / FILE, LeftOutCoefficients)


def left_out_values(source: str) -> CoefficientValues | None:
    """The coefficients of the fit without a source; None where no fit has seen it. Raises InputError."""
    known = shipped_coefficients().sources.get(source)
    if known is None:
        return None
    return {CoefficientName(owner, name): value for owner, each in known.items() for name, value in each.items()}


def with_left_out_seconds(
    cases: Sequence[PublishedCase], predictions: Sequence[CasePrediction]
) -> list[CasePrediction]:
    """Predictions with the seconds of the fit without the case's source, where the shipped coefficients saw it."""
    known, result = shipped_coefficients().sources, list(predictions)
    for source in sorted({case.origin.source for case in cases} & known.keys()):
        timed = (case.origin.source == source and case.seconds and not case.encoders for case in cases)
        places = [place for place, is_timed in enumerate(timed) if is_timed]
        own = [cases[place] for place in places]
        values = left_out_values(source) or {}
        for place, seconds in zip(places, predicted_seconds(own, machines_of_cases(own), values), strict=True):
            result[place] = replace(result[place], left_out_seconds=float(seconds))
    return result
