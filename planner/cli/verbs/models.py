"""`planner models`: lists the shipped models with exact parameter counts."""

from planner.cli.options import Json


def models(json: Json = False) -> None:
    """List shipped models with exact parameter counts."""
    from planner.cli import render
    from planner.cli.views import plan_tables
    from planner.specs.shipped_models import shipped_models

    shipped = shipped_models()
    render.emit(json, {"models": [module._asdict() for module in shipped]}, plan_tables.model_table(shipped))
