"""`planner profile`: measure this machine."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, ModelName


def profile(
    model: ModelName,
    ranks: Annotated[
        int | None, typer.Option(help="Processes that measure at once, as they will train.", min=1)
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="bf16, float32 or float64.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A coarse grid, under a minute.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Instead of the user's cache.")] = None,
    json: Json = False,
) -> None:
    """Measure what a model's layers, ends, optimizer and collectives cost on this machine."""
    from planner import pipeline
    from planner.cli import progress, render, summary, tables

    with progress.bar("profiling", "measurements") as on_progress:
        measured, path = pipeline.profile(model, ranks, dtype, quick, output, on_progress)
    render.emit(json, summary.profiled(measured, path), *tables.profiled(measured, path))
