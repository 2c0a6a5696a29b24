"""`planner simulate`: a plan becomes a timeline."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile, TraceRanks, given_ranks
from planner.errors import InputError
from planner.specs.overlap import overlap_of


def simulate(
    plan: PlanFile,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace here (.json or .json.gz); open it in Perfetto.")
    ] = None,
    trace_ranks: TraceRanks = None,
    measured: Annotated[
        Path | None, typer.Option(help="What `planner run --trace` wrote: laid beside the simulation, and explained.")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option(help="Beside compute: tp=off,pp=on,dp=off,ep=on, or all=off. Else as priced.")
    ] = None,
    json: Json = False,
) -> None:
    """Simulate a plan: step time, memory, where time goes.

    Every task of the plan, priced as the plan says, through the event engine. With --measured, the tasks that explain
    what a run differs by; --trace then shows both. With --overlap, as if other exchanges ran beside compute.
    """
    from planner import pipeline
    from planner.cli import explained, render, summary, tables

    if trace_ranks and not trace:
        raise InputError("ranks of which trace?", where="--trace-ranks", fix="add --trace FILE")
    read = pipeline.read_plan(plan)
    only = given_ranks(trace_ranks, read.size)
    switched = overlap_of(overlap)
    scores = pipeline.simulate(read, switched)
    beside = pipeline.overlay(read, scores, measured) if measured else ()
    drawn = pipeline.write_trace(trace, read, scores, beside, only) if trace else 0
    said = summary.simulated(read, scores) | (explained.summary(beside) if measured else {})
    said |= {"overlap": {kind: getattr(switched, kind) for kind in switched.said}} if switched.said else {}
    written = tables.traced(trace, len(beside or scores), (drawn, read.size))
    render.emit(json, said, tables.simulated(read, scores), *explained.pictures(beside), *written)
