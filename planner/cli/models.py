"""`planner models`: what is shipped, with exact parameter counts."""

from planner.cli.options import Json


def models(json: Json = False) -> None:
    """List the shipped models with exact parameter counts, and what the counts cover."""
    from planner import pipeline
    from planner.cli import render, tables

    listed = pipeline.shipped_models()
    render.emit(json, {"models": [row._asdict() for row in listed]}, tables.models(listed))
