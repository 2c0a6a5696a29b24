"""`planner list`: what is shipped, by kind; `planner schema`: the JSON Schema of a file format, for editors."""

from enum import Enum
from typing import Annotated

import typer

from planner.cli.options import Json


class ListName(str, Enum):
    jobs = "jobs"
    clusters = "clusters"
    devices = "devices"
    models = "models"
    families = "families"
    lengths = "lengths"
    images = "images"
    audio = "audio"
    strategies = "strategies"
    software = "software"


def list_shipped(kind: Annotated[ListName, typer.Argument(help="What to list.")], json: Json = False) -> None:
    """List what is shipped: a line for each, with its name, what it is, and its source."""
    from planner.cli import render
    from planner.cli.views import shipped_lines
    from planner.workflows.shipped_lists import LISTS

    entries = [*LISTS[kind.value]()]
    render.emit(json, shipped_lines.answer(kind.value, entries), shipped_lines.lines(entries))


def schema(
    kind: Annotated[str, typer.Argument(help="Kind of file: job, model, cluster, profile, software, plan or step.")],
) -> None:
    """Print the JSON Schema of a file format."""
    from planner.cli import render
    from planner.files import json_text
    from planner.workflows.editor_schemas import schema_for_editor

    render.print_raw(json_text(schema_for_editor(kind)))
