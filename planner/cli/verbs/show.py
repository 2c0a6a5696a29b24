"""`planner show`: draws a plan in the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile


def show(
    plan: PlanFile,
    svg: Annotated[
        Path | None, typer.Option(help="Also write the picture here as SVG, for documents and reviews.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw a plan to scale, with step time, bound and memory.

    Groups of a micro-batch: ranks from left to right, time from top to bottom. Pipelines, and ranks that synchronise
    once a step: one line per rank, time from left to right.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import json_answers, plan_picture
    from planner.files import write_text

    loaded, scores = pipeline.read_scored(plan)
    if svg:
        write_text(svg, render.svg(f"planner show {plan}", plan_picture.draw_plan(loaded, scores, render.SVG_CANVAS)))
    answer = json_answers.simulation_answer(loaded, scores) if json else {}
    render.emit(json, answer, *plan_picture.draw_plan(loaded, scores, render.canvas()))
