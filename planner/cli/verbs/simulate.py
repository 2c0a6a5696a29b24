"""`planner simulate`: simulates a plan task by task."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile, TraceRanks, parse_ranks
from planner.errors import InputError
from planner.specs.framework.overlap import parse_overlap


def simulate(
    plan: PlanFile,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace here (.json or .json.gz), for Perfetto.")
    ] = None,
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
