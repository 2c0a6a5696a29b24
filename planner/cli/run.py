"""`planner run`: a plan trains."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile, Seed


def run(
    plan: PlanFile,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps; the plan's own when left out.", min=1)] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare loss and gradients with one process.")] = False,
    dtype: Annotated[str | None, typer.Option(help="bf16, float32 or float64 instead of the plan's.")] = None,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW.", min=0.0)] = 1e-3,
    trace: Annotated[Path | None, typer.Option(help="Write the measured timeline as a Chrome trace.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run a plan on this machine: real processes train the real model; predicted stands beside measured."""
    from planner import pipeline
    from planner.cli import progress, render, summary, tables

    read = pipeline.read_plan(plan)
    options = pipeline.run_options(steps=steps, verify=verify, dtype=dtype, learning_rate=learning_rate, seed=seed)
    with progress.training(read) as on_progress:
        ran = pipeline.run(read, options, on_progress)
    if trace:
        pipeline.write_measured_trace(trace, ran)
    render.emit(json, summary.ran(ran), *tables.ran(ran, trace))
