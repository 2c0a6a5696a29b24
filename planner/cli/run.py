"""`planner run`: a plan trains."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Dtype, Json, PlanFile, Seed


def run(
    plan: PlanFile,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps; the plan's own when left out.", min=1)] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare loss and gradients with one process.")] = False,
    dtype: Dtype = None,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW.", min=0.0)] = 1e-3,
    trace: Annotated[
        Path | None, typer.Option(help="Write the measured steps here; `simulate --measured` reads it.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Its job, to plan further batches; when not beside the plan.")] = None,
    seed: Seed = 0,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Keep this run out of `planner ledger`.")] = False,
    json: Json = False,
) -> None:
    """Train with a plan: predicted beside measured.

    Real processes on this machine; under torchrun: torchrun --nproc-per-node N -m planner.runtime PLAN.
    """
    from planner import pipeline
    from planner.cli import ledger_runs, progress, render, summary, tables

    pipeline.require_torch("run")
    from planner.runtime import RunOptions

    read = pipeline.read_plan(plan)
    options = RunOptions(steps, verify, dtype.value if dtype else None, seed, learning_rate, plan.parent)
    with progress.training(read) as on_progress:
        ran = pipeline.run(read, options, on_progress, job)
    if trace:
        pipeline.write_measured_trace(trace, ran)
    render.emit(json, summary.ran(ran), *tables.ran(ran, trace))
    if not no_ledger:
        ledger_runs.note(ran)
