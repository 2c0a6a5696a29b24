"""What a calibration has found, as tables and as JSON."""

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


def tables(made: Calibrated, path: Path | None) -> Iterator[RenderableType]:
    """Coefficients of each table, and how far they are off."""
    shown = table("of", "coefficients", ">rows", ">error", ">worst tenth", ">left out", "cannot tell")
    for name, found in sorted(made.found.items()):
        values = ", ".join(f"{key} {value:g}" for key, value in found.values.items())
        fit = found.fitted
        left = "" if fit.left_out_error is None else percent(fit.left_out_error)
        shown.add_row(
            name, values, str(fit.rows), percent(fit.median_error), percent(fit.p90_error), left, ", ".join(fit.held)
        )
    yield shown
    for found in made.found.values():
        for line in found.left_out:
            yield Text(f"left out: {line}", style="yellow")
    for name in made.unused:
        yield Text(f"{name}: of no kind that is fitted", style="dim")
    yield written([path] if path else [])


def tables_answer(made: Calibrated, path: Path | None) -> dict[str, Any]:
    """With `--json`, for programs."""
    fits = {
        name: {"values": found.values, "rows": found.fitted.rows, "median_error": found.fitted.median_error,
               "p90_error": found.fitted.p90_error, "left_out_error": found.fitted.left_out_error,
               "held": list(found.fitted.held), "rows_left_out": list(found.left_out)}
        for name, found in sorted(made.found.items())
    }  # fmt: skip
    return {
        "device": made.profile.name,
        "fits": fits,
        "unused": list(made.unused),
        "written": str(path) if path else None,
    }


def published(made: Fit, paths: Sequence[Path]) -> Iterator[RenderableType]:
    """Coefficients of each framework and device, then errors by source."""
    owners = sorted({knob.owner for knob in made.found.values}, key=lambda name: (name != COMMON, name))
    shown = table("of", "coefficient", ">value", ">prior", ">±", "")
    for owner in owners:
        for knob in sorted(knob for knob in made.found.values if knob.owner == owner):
            shown.add_row(*coefficient(made.found, knob))
    yield shown
    errors = table("source", ">rows", ">error", ">left out", ">as generic", title="\nmedian errors of time")
    for one in by_source(made):
        left = ["" if each is None else percent(each) for each in (one.left_out_error, one.generic_error)]
        errors.add_row(one.name, str(one.rows), percent(one.median_error), *left)
    yield errors
    yield written(paths)


def coefficient(found: Found, knob: Knob) -> tuple[str, ...]:
    held = "as assumed" if found.held(knob) else ""
    return (
        knob.owner,
        knob.name,
        f"{found.values[knob]:.4g}",
        f"{prior(knob).value:g}",
        percent(expm1(found.widths.get(knob, prior(knob).width))),
        held,
    )


def published_answer(made: Fit, paths: Sequence[Path]) -> dict[str, Any]:
    """With `--json`, for programs."""
    values: dict[str, dict[str, Any]] = {}
    for knob, value in made.found.values.items():
        values.setdefault(knob.owner, {})[knob.name] = {
            "value": rounded(value),
            "prior": prior(knob).value,
            "relative_deviation": rounded(expm1(made.found.widths.get(knob, prior(knob).width))),
            "held": made.found.held(knob),
        }
    sources = {
        one.name: {"rows": one.rows, "median_error": one.median_error, "left_out_error": one.left_out_error,
                   "left_out_error_as_generic": one.generic_error}
        for one in by_source(made)
    }  # fmt: skip
    return {
        "rows": len(made.cases),
        "coefficients": values,
        "spreads": dict(made.spreads),
        "paces": paces(made),
        "sources": sources,
        "written": [str(path) for path in paths],
    }


def written(paths: Sequence[Path]) -> Text:
    if not paths:
        return Text("\nnothing written: give -o", style="dim")
    return Text(f"\nwritten: {paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""))
