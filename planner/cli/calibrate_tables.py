"""Results of a calibration, as tables and as JSON."""

from collections.abc import Iterator, Sequence
from math import expm1
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.calibrate.assemble import Calibrated
from planner.calibrate.joint import Found
from planner.calibrate.knobs import COMMON, Knob, prior
from planner.calibrate.software import Fit, paces, rounded
from planner.calibrate.steps import by_source
from planner.cli.tables import table
from planner.units import percent


def tables(calibrated: Calibrated, path: Path | None) -> Iterator[RenderableType]:
    """Coefficients fitted to each table of measurements, and their errors."""
    rows = table("table", "coefficients", ">rows", ">median error", ">90th %", ">held out", "undetermined")
    for name, kernel in sorted(calibrated.found.items()):
        values = ", ".join(f"{key} {value:g}" for key, value in kernel.values.items())
        quality = kernel.fitted
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
    for kernel in calibrated.found.values():
        for line in kernel.left_out:
            yield Text(f"omitted: {line}", style="yellow")
    for name in calibrated.unused:
        yield Text(f"{name}: not a kind of table that is fitted", style="dim")
    yield written([path] if path else [])


def tables_answer(calibrated: Calibrated, path: Path | None) -> dict[str, Any]:
    """The JSON answer for a calibration on tables of kernels."""
    fits = {
        name: {"values": kernel.values, "rows": kernel.fitted.rows, "median_error": kernel.fitted.median_error,
               "p90_error": kernel.fitted.p90_error, "left_out_error": kernel.fitted.left_out_error,
               "held": list(kernel.fitted.held), "rows_left_out": list(kernel.left_out)}
        for name, kernel in sorted(calibrated.found.items())
    }  # fmt: skip
    return {
        "device": calibrated.profile.name,
        "fits": fits,
        "unused": list(calibrated.unused),
        "written": str(path) if path else None,
    }


def published(fit: Fit, paths: Sequence[Path]) -> Iterator[RenderableType]:
    """Coefficients of each framework and device, then errors by source of the records."""
    owners = sorted({knob.owner for knob in fit.found.values}, key=lambda name: (name != COMMON, name))
    rows = table("framework or device", "coefficient", ">value", ">prior", ">±", "")
    for owner in owners:
        for knob in sorted(knob for knob in fit.found.values if knob.owner == owner):
            rows.add_row(*coefficient(fit.found, knob))
    yield rows
    errors = table("source", ">records", ">error", ">held out", ">as generic", title="\nmedian errors of step time")
    for source in by_source(fit):
        held_out = ["" if each is None else percent(each) for each in (source.left_out_error, source.generic_error)]
        errors.add_row(source.name, str(source.rows), percent(source.median_error), *held_out)
    yield errors
    yield written(paths)


def coefficient(joint: Found, knob: Knob) -> tuple[str, ...]:
    assumed = "as assumed" if joint.held(knob) else ""
    return (
        knob.owner,
        knob.name,
        f"{joint.values[knob]:.4g}",
        f"{prior(knob).value:g}",
        percent(expm1(joint.widths.get(knob, prior(knob).width))),
        assumed,
    )


def published_answer(fit: Fit, paths: Sequence[Path]) -> dict[str, Any]:
    """The JSON answer for a calibration on published step times."""
    values: dict[str, dict[str, Any]] = {}
    for knob, value in fit.found.values.items():
        values.setdefault(knob.owner, {})[knob.name] = {
            "value": rounded(value),
            "prior": prior(knob).value,
            "relative_deviation": rounded(expm1(fit.found.widths.get(knob, prior(knob).width))),
            "held": fit.found.held(knob),
        }
    sources = {
        source.name: {"rows": source.rows, "median_error": source.median_error, "left_out_error": source.left_out_error,
                   "left_out_error_as_generic": source.generic_error}
        for source in by_source(fit)
    }  # fmt: skip
    return {
        "rows": len(fit.cases),
        "coefficients": values,
        "spreads": dict(fit.spreads),
        "paces": paces(fit),
        "sources": sources,
        "written": [str(path) for path in paths],
    }


def written(paths: Sequence[Path]) -> Text:
    if not paths:
        return Text("\nnothing written: give -o to write it", style="dim")
    return Text(f"\nwritten: {paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""))
