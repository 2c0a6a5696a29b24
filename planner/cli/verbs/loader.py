"""`planner loader`: how cores and links are divided among the stages of a data loader."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, written


def loader(
    stages: Annotated[
        Path, typer.Argument(help="A file of loader stages: written, or measured by planner profile --loader.")
    ],
    output: Annotated[
        Path | None, written("-o", "--output", help="Write the stages with their shares to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Divide cores and links among the stages of a data loader, so that the slowest is as quick as can be.

    Exact, by bisection on the rate; says whether the loader or who trains sets the step, and what one more core gives.
    """
    from planner import files
    from planner.cli import render
    from planner.cli.views import loader_tables
    from planner.specs.base import with_fields
    from planner.specs.loader import LoaderFile
    from planner.strategies import divide_loader

    answer = divide_loader(files.read(stages, LoaderFile))
    if output:
        files.write(output, with_fields(answer.loader, shares=answer.shares))
    told = loader_tables.loader_answer(answer, output) if json else {}
    render.emit(json, told, *loader_tables.loader_lines(answer, output))
