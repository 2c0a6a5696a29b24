"""`planner schema`: the JSON Schema of a file format, for editors."""

from typing import Annotated

import typer


def schema(
    kind: Annotated[str, typer.Argument(help="job, model, cluster, profile or plan.")],
) -> None:
    """Print the JSON Schema of a file format, for editors."""
    from planner import pipeline
    from planner.cli import render

    render.raw(pipeline.schema(kind))
