"""`planner profile`: measure this machine."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Dtype, Json, ModelName


def profile(
    model: ModelName,
    ranks: Annotated[
        int | None, typer.Option(help="Processes that measure at once, as they will train.", min=1)
    ] = None,
    dtype: Dtype = None,
    quick: Annotated[bool, typer.Option("--quick", help="A coarse grid, under a minute.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Instead of the user's cache.")] = None,
    json: Json = False,
) -> None:
    """Measure this machine: layers, optimizer, collectives.

    Kept in the user's cache, where jobs with `profile: auto` find it; an interrupted profile goes on where it stopped.
    """
    from planner import evidence, pipeline
    from planner.cli import profile_tables, progress, render, summary

    pipeline.require_torch("profile")
    measuring = evidence.Measuring(ranks, dtype.value if dtype else None, quick)
    with progress.bar("profiling", "measurements") as on_progress:
        measured, path = evidence.profile(model, measuring, output, on_progress)
    render.emit(json, summary.profiled(measured, path), *profile_tables.profiled(measured, path))
