"""`planner solve`: a job becomes a plan."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Effort, Job, Json, Seed


def solve(
    job: Job,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Plan file; `-` for stdout.")] = None,
    batches: Annotated[int, typer.Option(help="Plan this many consecutive batches.", min=1)] = 1,
    first_row: Annotated[int, typer.Option(help="Row of the data at which the first batch begins.", min=0)] = 0,
    lengths: Annotated[str | None, typer.Option(help="A file of lengths instead of the job's.")] = None,
    seed: Seed = 0,
    effort: Effort = 2,
    json: Json = False,
) -> None:
    """Decide a job: write its plan, with a proven bound.

    The same job gives the same bytes. Exit code 3: nothing can satisfy the job, and the error says what binds.
    """
    from planner import files, pipeline
    from planner.cli import progress, render, summary, tables
    from planner.specs.inputs import Options

    options = Options(batches=batches, first_row=first_row, seed=seed, effort=effort, lengths=lengths)
    with progress.bar("solving", "batches") as on_batch:
        solved = pipeline.solve(job, options, on_batch)
    if str(output) == "-":
        render.raw(files.dump(solved.plan))
        return
    path = output or Path(f"{solved.plan.name}.plan.yaml")
    files.write(path, solved.plan)
    render.emit(json, summary.solved(solved, path), tables.solved(solved, path))
