"""`planner ledger`: compares predictions with published measurements, and with one's own runs."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def ledger(
    directory: Annotated[
        Path | None, typer.Argument(help="A folder of published measurements; default: your own runs.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Also list every record, or every run.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write a scatter plot of predicted against measured here.")] = None,
    source: Annotated[list[str] | None, typer.Option(help="Only this source of the folder; may be repeated.")] = None,
    json: Json = False,
) -> None:
    """Compare predictions with measurements: errors, bias, coverage.

    Every published record is predicted, or counted with the reason why not. Without a folder: how your own runs drift.
    """
    from planner.cli import render
    from planner.cli.views import ledger_tables, own_run_tables
    from planner.errors import InputError
    from planner.files import write_text
    from planner.ledger import accuracy_json, accuracy_svg, default_path
    from planner.workflows import evidence

    if directory is not None:
        account = evidence.published_account(directory, source or ())
        if svg:
            write_text(svg, accuracy_svg(account))
        render.emit(json, accuracy_json(account, rows), *ledger_tables.ledger_tables(account, rows, svg))
        return
    if svg or source:
        raise InputError(
            "this option is for published records", where="--svg" if svg else "--source", fix="give their folder"
        )
    drifts, unread = evidence.ledger_drift()
    pictures = own_run_tables.drift_tables(drifts, unread, default_path(), rows)
    render.emit(json, own_run_tables.summary(drifts, unread, default_path(), rows), *pictures)
