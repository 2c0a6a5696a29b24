"""`planner show`: a plan as a person wants it."""

from planner.cli.options import Json, PlanFile


def show(plan: PlanFile, json: Json = False) -> None:
    """Draw a plan to scale, and say what it is worth.

    Ranks from left to right, time from top to bottom; what the numbers rest on stands below.
    """
    from planner import pipeline
    from planner.cli import picture, render, summary

    read = pipeline.read_plan(plan)
    scores = pipeline.simulate(read)
    render.emit(json, summary.simulated(read, scores), *picture.plan(read, scores, render.width()))
