"""`planner show`, `planner simulate` and `planner report`: a plan as a picture, as a timeline, and as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.options import Json, PlanFile, TraceRanks, parse_ranks, written
from planner.errors import InputError
from planner.specs.framework.overlap import parse_overlap
from planner.units import byte_size

if TYPE_CHECKING:
    from rich.text import Text


def show(
    plan: PlanFile,
    svg: Annotated[Path | None, written(help="Also write the picture here as SVG, for documents and reviews.")] = None,
    prices: Annotated[
        str | None, typer.Option(help="torchrec: price embedding tables by TorchRec's own estimator, too.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw a plan to scale, with step time, bound and memory.

    Groups of a micro-batch: ranks from left to right, time from top to bottom. Pipelines, and ranks that synchronise
    once a step: one line per rank, time from left to right.

    --prices torchrec asks a Python that has torchrec 1.8: this one, or that which TORCHREC_PYTHON names.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import embedding_tables, json_answers, plan_picture
    from planner.export import torchrec_seconds
    from planner.files import write_text

    if prices not in (None, "torchrec"):
        raise InputError(f"no prices are called `{prices}`", where="--prices", fix="torchrec, or leave it out")
    loaded, scores = pipeline.read_scored(plan)
    asked = torchrec_seconds(loaded) if prices else None
    if svg:
        write_text(svg, render.svg(f"planner show {plan}", plan_picture.draw_plan(loaded, scores, render.SVG_CANVAS)))
    answer = json_answers.simulation_answer(loaded, scores) if json else {}
    if json and asked:
        answer["torchrec"] = {"seconds": [*asked.torchrec], "own_seconds": [*asked.own]}
    lines = embedding_tables.torchrec_lines(asked) if asked else ()
    render.emit(json, answer, *plan_picture.draw_plan(loaded, scores, render.canvas()), *lines)


def simulate(
    plan: PlanFile,
    trace: Annotated[Path | None, written(help="Write a Chrome trace here (.json or .json.gz), for Perfetto.")] = None,
    trace_ranks: TraceRanks = None,
    measured: Annotated[
        Path | None, typer.Option(help="A trace from `planner run --trace`, to compare with the simulation.")
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            help="Communication that overlaps with compute: tp=off,pp=on,dp=off,ep=on, or all=off; default: the plan's."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Simulate a plan: step time, memory, where time goes.

    Runs every task of the plan through the event engine, at the plan's prices. --measured names the tasks that explain
    how a run differs from it, and --trace then shows both. --overlap changes which communication overlaps with compute.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import json_answers, measured_difference, plan_tables, run_tables
    from planner.workflows.tracing import overlay, write_simulated_trace

    if trace_ranks and not trace:
        raise InputError("no trace is asked for", where="--trace-ranks", fix="add --trace FILE")
    loaded, scores = pipeline.read_scored(plan)
    ranks = parse_ranks(trace_ranks, loaded.size)
    overlaps = parse_overlap(overlap)
    scores = pipeline.simulate(loaded, overlaps) if overlaps.switched else scores
    overlays = overlay(loaded, scores, measured) if measured else ()
    drawn = write_simulated_trace(trace, loaded, scores, overlays, ranks) if trace else 0
    data = json_answers.simulation_answer(loaded, scores) | (measured_difference.summary(overlays) if measured else {})
    data |= {"overlap": {kind: getattr(overlaps, kind) for kind in overlaps.switched}} if overlaps.switched else {}
    trace_lines = run_tables.trace_line(trace, len(overlays or scores), (drawn, loaded.size))
    render.emit(
        json,
        data,
        plan_tables.simulation_table(loaded, scores),
        *measured_difference.difference_tables(overlays),
        *trace_lines,
    )


def report(
    what: Annotated[
        Path,
        typer.Argument(help="A plan, a trace, a folder of recorded traces or published records, or a ledger."),
    ],
    output: Annotated[Path, written("--output", "-o", help="File to write the page to.")] = Path("report.html"),
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
