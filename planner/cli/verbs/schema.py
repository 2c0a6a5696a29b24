"""`planner schema`: prints the JSON Schema of a file format, for editors."""

from typing import Annotated

import typer


def schema(
    kind: Annotated[str, typer.Argument(help="Kind of file: job, model, cluster, profile, plan or step.")],
) -> None:
    """Print the JSON Schema of a file format."""
    from planner.cli import render
    from planner.files import json_text
    from planner.plan.formats import schema_of_format

    render.print_raw(json_text(schema_of_format(kind)))
