"""`planner schema`: prints the JSON Schema of a file format, for editors."""

from typing import Annotated

import typer


def schema(
    kind: Annotated[str, typer.Argument(help="Kind of file: job, model, cluster, profile, software, plan or step.")],
) -> None:
    """Print the JSON Schema of a file format."""
    from planner.cli import render
    from planner.files import json_text
    from planner.workflows.editor_schemas import schema_for_editor

    render.print_raw(json_text(schema_for_editor(kind)))
