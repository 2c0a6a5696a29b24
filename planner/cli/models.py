"""`planner models`: lists the shipped models with exact parameter counts."""

from planner.cli.options import Json


def models(json: Json = False) -> None:
    """List shipped models with exact parameter counts."""
    from planner.cli import render, tables
    from planner.specs.catalogue import shipped_models

    shipped = shipped_models()
    render.emit(json, {"models": [row._asdict() for row in shipped]}, tables.model_table(shipped))
