"""`planner calibrate`: fits coefficients to measurements, one's own or published."""

import os
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, optional_duration


def calibrate(
    folder: Annotated[
        Path, typer.Argument(help="Measured tables of kernels, or published step times, as CSV; or a plan that ran.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File for the profile; folder for frameworks and kernel rates."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="For tables: the device on which they were measured.")] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            help="For published records: predict this source from a fit of the others; `each`: every source in turn."
        ),
    ] = None,
    measured: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Of a plan: what a step of it took, such as `14.2s`.")
    ] = None,
    from_run: Annotated[
        bool, typer.Option("--from-run", help="Of a plan: what a step took when `planner run` last trained it.")
    ] = False,
    json: Json = False,
) -> None:
    """Fit a device's kernel rates to measured tables, or frameworks to published step times or to one run of a plan.

    The columns of the files decide which. A run shifts coefficients as far as one run can tell. Coefficients that the
    data cannot determine keep their assumed values, and are named.
    """
    from planner.cli import progress, render
    from planner.cli.views import calibration_tables as views
    from planner.errors import InputError
    from planner.workflows import evidence

    if measured is not None or from_run:
        refuse_folder(folder, "--from-run" if from_run else "--measured")
        refuse_beside_a_run(measured is not None and from_run, device, leave_out)
        seconds = optional_duration(measured, "--measured")
        if seconds == 0.0:
            raise InputError("a step takes longer than that", where="--measured", fix="seconds above 0")
        run, paths = evidence.calibrate_to_run(folder, seconds, output)
        render.emit(json, views.run_answer(run, paths), *views.run_tables(run, paths))
        return
    with progress.progress_bar("calibrating", "") as on_progress:
        if evidence.holds_published_records(folder):
            if device:
                raise InputError("these are published records of many devices", where="--device", fix="leave it out")
            fit, paths = evidence.calibrate_published(folder, output, leave_out or (), on_progress)
        else:
            if leave_out:
                fix = "omit it: a fifth of the shapes of each table is held out already"
                raise InputError("these are measured tables, not published sources", where="--leave-out", fix=fix)
            calibrated, path = evidence.calibrate_tables(folder, device, output, on_progress)
            render.emit(json, views.kernel_answer(calibrated, path), *views.kernel_tables(calibrated, path))
            return
    render.emit(json, views.framework_answer(fit, paths), *views.framework_tables(fit, paths))


def refuse_folder(plan: Path, option: str) -> None:
    """Raises InputError for what one run is of, where that is a folder and no plan."""
    from planner.errors import InputError

    if os.path.isdir(plan):
        raise InputError(f"{plan} is a folder, and a run is of a plan", where=option, fix="give the plan that ran")


def refuse_beside_a_run(both: bool, device: str | None, leave_out: list[str] | None) -> None:
    """Raises InputError for options that say two things of one run, or are of tables and records."""
    from planner.errors import InputError

    if both:
        raise InputError("the run was measured already", where="--from-run", fix="omit it, or --measured")
    for option, value in (("--device", device), ("--leave-out", leave_out)):
        if value:
            raise InputError("this option is for tables or published records", where=option, fix="omit it")
