"""`planner calibrate`: coefficients from what was measured, here or by others."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def calibrate(
    folder: Annotated[Path, typer.Argument(help="Measured tables of kernels, or published step times, as CSV.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file for the profile; a folder for frameworks and paces.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Of tables: the device that they are of.")] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(help="Of published rows: predict this source from the others; `each` for all.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit a device's kernels to tables, or frameworks to published step times.

    What the columns of the files are decides which. What the data cannot tell stays as assumed, and is named.
    """
    from planner import evidence
    from planner.cli import calibrate_tables as shown
    from planner.cli import progress, render
    from planner.errors import InputError

    with progress.bar("calibrating", "") as on_progress:
        if evidence.holds_published(folder):
            if device:
                raise InputError("these are published rows of many devices", where="--device", fix="leave it out")
            made, paths = evidence.calibrate_published(folder, output, leave_out or (), on_progress)
        else:
            if leave_out:
                fix = "leave it out: each table is fitted on four fifths of its shapes anyway"
                raise InputError("these are tables, not sources", where="--leave-out", fix=fix)
            found, path = evidence.calibrate_tables(folder, device, output, on_progress)
            render.emit(json, shown.tables_answer(found, path), *shown.tables(found, path))
            return
    render.emit(json, shown.published_answer(made, paths), *shown.published(made, paths))
