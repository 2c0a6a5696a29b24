"""`planner simulate`: a plan becomes a timeline."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile


def simulate(
    plan: PlanFile,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace here; open it in Perfetto.")] = None,
    json: Json = False,
) -> None:
    """Simulate a plan: step time, memory, where time goes.

    Every task of the plan, priced as the plan says, through the event engine.
    """
    from planner import pipeline
    from planner.cli import render, summary, tables

    read = pipeline.read_plan(plan)
    scores = pipeline.simulate(read)
    if trace:
        pipeline.write_trace(trace, scores)
    render.emit(json, summary.simulated(read, scores), tables.simulated(read, scores, trace))
