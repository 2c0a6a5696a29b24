"""`planner profile`: measures this machine."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Dtype, Json, ModelName
from planner.extras import require_torch


def profile(
    model: ModelName,
    ranks: Annotated[
        int | None, typer.Option(help="Processes that measure at the same time: as many as will train.", min=1)
    ] = None,
    dtype: Dtype = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure fewer shapes, in under a minute.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write, instead of one in the user's cache.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure this machine: layers, optimizer, collectives.

    Jobs with `profile: auto` find the profile in the user's cache; an interrupted profile resumes where it stopped.
    """
    from planner.cli import progress, render
    from planner.cli.views import json_answers, profile_tables
    from planner.workflows import evidence

    require_torch("profile")
    measuring = evidence.ProfileSettings(ranks, dtype.value if dtype else None, quick)
    with progress.progress_bar("profiling", "measurements") as on_progress:
        measured, path = evidence.measure_profile(model, measuring, output, on_progress)
    render.emit(json, json_answers.profile_answer(measured, path), *profile_tables.profile_tables(measured, path))
