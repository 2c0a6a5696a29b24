"""`planner ledger`: predicted beside measured, of what others published and of the runs made here."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def ledger(
    directory: Annotated[
        Path | None, typer.Argument(help="A folder of published measurements; your own runs when left out.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Every row, or every run, beside the figures.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write predicted against measured here, as a picture.")] = None,
    source: Annotated[list[str] | None, typer.Option(help="Of a folder, this source only; may be repeated.")] = None,
    json: Json = False,
) -> None:
    """See what predictions are worth: predicted beside measured.

    Every row is predicted or counted with the reason why not. Without a folder: how runs of your own drift.
    """
    from planner import evidence
    from planner.cli import ledger_runs, ledger_tables, render
    from planner.errors import InputError
    from planner.files import write_text
    from planner.ledger.answer import answer
    from planner.ledger.own import default_path
    from planner.ledger.picture import scatter

    if directory is not None:
        account = evidence.ledger(directory, source or ())
        if svg:
            write_text(svg, scatter(account))
        render.emit(json, answer(account, rows), *ledger_tables.account(account, rows, svg))
        return
    if svg or source:
        raise InputError("this is of published rows", where="--svg" if svg else "--source", fix="give their folder")
    found, unread = evidence.drift()
    pictures = ledger_runs.drifts(found, unread, default_path(), rows)
    render.emit(json, ledger_runs.summary(found, unread, default_path(), rows), *pictures)
