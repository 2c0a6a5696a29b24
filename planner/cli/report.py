"""`planner report`: a plan, a timeline or a ledger as a page."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def report(
    what: Annotated[Path, typer.Argument(help="A plan, a trace, a folder of published rows, or a ledger of runs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the page here.")] = Path("report.html"),
    measured: Annotated[Path | None, typer.Option(help="Of a plan: the trace of a run of it, shown beside it.")] = None,
    why: Annotated[bool, typer.Option("--why", help="Of a plan: what would help, by solving it again.")] = False,
    json: Json = False,
) -> None:
    """Write one HTML page to look at: ranks in time, memory, where time goes, and why.

    The page holds all it needs, works offline, and is the same bytes for the same input.
    """
    from planner import reporting
    from planner.cli import render, report_lines

    written = reporting.write(what, output, reporting.With(measured, why))
    render.emit(json, written, report_lines.written(written))
