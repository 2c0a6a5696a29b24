"""`planner report`: writes a plan, a trace or a ledger as an HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.options import Json
from planner.units import byte_size

if TYPE_CHECKING:
    from rich.text import Text


def report(
    what: Annotated[Path, typer.Argument(help="A plan, a trace, a folder of published records, or a ledger of runs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write the page to.")] = Path("report.html"),
    measured: Annotated[
        Path | None, typer.Option(help="For a plan: the trace of a run of it, to compare with the simulation.")
    ] = None,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="For a plan: also solve it again with more memory, ranks and bandwidth, to show what would help.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Write one HTML page: timeline by rank, memory, where time goes, and why.

    The page is self-contained and works offline; the same input gives the same bytes.
    """
    from planner.cli import render
    from planner.workflows import reporting

    written = reporting.write_page(what, output, reporting.PageExtras(measured, why))
    render.emit(json, written, page_line(written))


def page_line(written: dict[str, Any]) -> "Text":
    """Where the page is, and how large."""
    from rich.text import Text

    return Text.assemble(
        (f"{written['report']}", "bold"),
        f"  {byte_size(written['bytes'])}: open it in a browser; it loads nothing from the network",
    )
