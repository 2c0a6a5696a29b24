"""`planner show`: a plan as a person wants it."""

from planner.cli.options import Json, PlanFile


def show(plan: PlanFile, json: Json = False) -> None:
    """Draw a plan: groups per micro-batch to scale, predicted time and memory, gap, and what the numbers rest on."""
    from planner import pipeline
    from planner.cli import picture, render, summary

    read = pipeline.read_plan(plan)
    scores = pipeline.simulate(read)
    render.emit(json, summary.simulated(read, scores), *picture.plan(read, scores, render.width()))
