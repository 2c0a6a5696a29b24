"""Results of a calibration, as tables and as JSON."""

from collections.abc import Iterator, Sequence
from math import expm1
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.calibrate import (
    GENERIC,
    CalibratedDevice,
    CalibratedRun,
    CoefficientName,
    FittedCoefficients,
    PublishedFit,
    errors_by_source,
    prior_of,
    sustained_rates,
)
from planner.cli.views.plain_table import table
from planner.units import duration, four_digits, percent, plural


def kernel_tables(calibrated: CalibratedDevice, path: Path | None) -> Iterator[RenderableType]:
    """Coefficients fitted to each table of measurements, and their errors."""
    rows = table("table", "coefficients", ">rows", ">median error", ">90th %", ">held out", "undetermined")
    for name, kernel in sorted(calibrated.fits.items()):
        values = ", ".join(f"{key} {value:g}" for key, value in kernel.values.items())
        quality = kernel.summary
        held_out = "" if quality.left_out_error is None else percent(quality.left_out_error)
        rows.add_row(
            name,
            values,
            str(quality.rows),
            percent(quality.median_error),
            percent(quality.p90_error),
            held_out,
            ", ".join(quality.held),
        )
    yield rows
    for kernel in calibrated.fits.values():
        for line in kernel.rejected_rows:
            yield Text(f"omitted: {line}", style="yellow")
    for name in calibrated.unused:
        yield Text(f"{name}: not a kind of table that is fitted", style="dim")
    yield written([path] if path else [])


def kernel_answer(calibrated: CalibratedDevice, path: Path | None) -> dict[str, Any]:
    """The JSON answer for a calibration on tables of kernels."""
    fits = {
        name: {"values": kernel.values, "rows": kernel.summary.rows, "median_error": kernel.summary.median_error,
               "p90_error": kernel.summary.p90_error, "left_out_error": kernel.summary.left_out_error,
               "held": list(kernel.summary.held), "rows_left_out": list(kernel.rejected_rows)}
        for name, kernel in sorted(calibrated.fits.items())
    }  # fmt: skip
    return {
        "device": calibrated.profile.name,
        "fits": fits,
        "unused": list(calibrated.unused),
        "written": str(path) if path else None,
    }


def framework_tables(fit: PublishedFit, paths: Sequence[Path]) -> Iterator[RenderableType]:
    """Coefficients of each framework and device, then errors by source of the records."""
    owners = sorted({named.owner for named in fit.coefficients.values}, key=lambda name: (name != GENERIC, name))
    rows = table("framework or device", "coefficient", ">value", ">prior", ">±", "")
    for owner in owners:
        for key in sorted(key for key in fit.coefficients.values if key.owner == owner):
            rows.add_row(*coefficient(fit.coefficients, key))
    yield rows
    errors = table("source", ">records", ">error", ">held out", ">as generic", title="\nmedian errors of step time")
    for source in errors_by_source(fit):
        held_out = ["" if each is None else percent(each) for each in (source.left_out_error, source.generic_error)]
        errors.add_row(source.name, str(source.records), percent(source.median_error), *held_out)
    yield errors
    yield written(paths)


def run_tables(made: CalibratedRun, paths: Sequence[Path]) -> Iterator[RenderableType]:
    """What a run of a plan changes, coefficient by coefficient."""
    rows = table("coefficient", ">change")
    for name, shift in sorted(made.shifts.items(), key=lambda pair: -abs(pair[1])):
        rows.add_row(name, f"{100 * expm1(shift):+.1f} %")
    yield rows
    yield Text(
        f"a step: predicted {duration(made.predicted)}, measured {duration(made.run.measured)},"
        f" predicted now {duration(made.after)}, after {plural(len(made.known), 'run')}"
    )
    yield written(paths)


def run_answer(made: CalibratedRun, paths: Sequence[Path]) -> dict[str, Any]:
    """The JSON answer for a calibration to one run."""
    return {
        "predicted_seconds": made.predicted,
        "measured_seconds": made.run.measured,
        "predicted_after_seconds": made.after,
        "runs": len(made.known),
        "changes": {name: expm1(shift) for name, shift in made.shifts.items()},
        "written": [str(path) for path in paths],
    }


def coefficient(joint: FittedCoefficients, key: CoefficientName) -> tuple[str, ...]:
    assumed = "as assumed" if joint.stays_at_prior(key) else ""
    return (
        key.owner,
        key.name,
        f"{joint.values[key]:.4g}",
        f"{prior_of(key).value:g}",
        percent(expm1(joint.deviations.get(key, prior_of(key).width))),
        assumed,
    )


def framework_answer(fit: PublishedFit, paths: Sequence[Path]) -> dict[str, Any]:
    """The JSON answer for a calibration on published step times."""
    values: dict[str, dict[str, Any]] = {}
    for key, value in fit.coefficients.values.items():
        values.setdefault(key.owner, {})[key.name] = {
            "value": four_digits(value),
            "prior": prior_of(key).value,
            "relative_deviation": four_digits(expm1(fit.coefficients.deviations.get(key, prior_of(key).width))),
            "held": fit.coefficients.stays_at_prior(key),
        }
    sources = {
        source.name: {
            "rows": source.records,
            "median_error": source.median_error,
            "left_out_error": source.left_out_error,
            "left_out_error_as_generic": source.generic_error,
        }
        for source in errors_by_source(fit)
    }
    return {
        "rows": len(fit.cases),
        "coefficients": values,
        "spreads": dict(fit.spreads),
        "paces": sustained_rates(fit),
        "sources": sources,
        "written": [str(path) for path in paths],
    }


def written(paths: Sequence[Path]) -> Text:
    if not paths:
        return Text("\nnothing written: give -o to write it", style="dim")
    return Text(f"\nwritten: {paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""))
