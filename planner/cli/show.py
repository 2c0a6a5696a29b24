"""`planner show`: a plan as a person wants it."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile


def show(
    plan: PlanFile,
    svg: Annotated[Path | None, typer.Option(help="Write the picture here, for a document or a review.")] = None,
    json: Json = False,
) -> None:
    """Draw a plan to scale, and say what it is worth.

    Ranks from left to right, time from top to bottom; what the numbers rest on stands below.
    """
    from planner import pipeline
    from planner.cli import picture, render, summary
    from planner.files import write_text

    read = pipeline.read_plan(plan)
    scores = pipeline.simulate(read)
    if svg:
        write_text(svg, render.svg(f"planner show {plan}", picture.plan(read, scores, render.SVG_CANVAS)))
    render.emit(json, summary.simulated(read, scores), *picture.plan(read, scores, render.canvas()))
