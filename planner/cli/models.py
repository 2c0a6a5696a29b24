"""`planner models`: what is shipped, with exact parameter counts."""

from planner.cli.options import Json


def models(json: Json = False) -> None:
    """List shipped models with exact parameter counts."""
    from planner.cli import render, tables
    from planner.specs.catalogue import shipped_models

    listed = shipped_models()
    render.emit(json, {"models": [row._asdict() for row in listed]}, tables.models(listed))
