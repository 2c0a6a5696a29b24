"""`planner solve`: a job becomes a plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import Effort, Job, Json, Seed

if TYPE_CHECKING:
    from planner.specs.inputs import Options


def solve(
    job: Job,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Plan file; `-` for stdout.")] = None,
    batches: Annotated[int, typer.Option(help="Plan this many consecutive batches.", min=1)] = 1,
    first_row: Annotated[int, typer.Option(help="Row of the data at which the first batch begins.", min=0)] = 0,
    lengths: Annotated[str | None, typer.Option(help="A file of lengths instead of the job's.")] = None,
    seed: Seed = 0,
    effort: Effort = 2,
    static: Annotated[bool, typer.Option("--static", help="One degree for all batches; says what plans add.")] = False,
    json: Json = False,
) -> None:
    """Decide a job: write its plan, with a proven bound.

    The same job gives the same bytes. Exit code 3: nothing can satisfy the job, and the error says what binds.
    """
    from planner import files, pipeline
    from planner.cli import progress, render, summary, tables
    from planner.specs.inputs import Options

    options = Options(batches=batches, first_row=first_row, seed=seed, effort=effort, lengths=lengths)
    if static:
        return solve_static(job, options, output, json)
    with progress.bar("solving", "batches") as on_batch:
        solved = pipeline.solve(job, options, on_batch)
    if str(output) == "-":
        return render.raw(files.dump(solved.plan))
    path = output or Path(f"{solved.plan.name}.plan.yaml")
    files.write(path, solved.plan)
    return render.emit(json, summary.solved(solved, path), tables.solved(solved, path))


def solve_static(job: str, options: "Options", output: Path | None, json: bool) -> None:
    """Write the best plan with one degree for all batches, and what per-batch planning saves."""
    from planner import files, pipeline
    from planner.cli import progress, render, why_tables

    with progress.bar("solving", "degrees") as on_degree:
        found = pipeline.static(job, options, on_degree)
    if str(output) == "-":
        return render.raw(files.dump(found.plan))
    path = output or Path(f"{found.plan.name}.static.plan.yaml")
    files.write(path, found.plan)
    shown = (*why_tables.shown(found.beside), why_tables.static_written(path))
    return render.emit(json, {**why_tables.summary(found.beside), "plan": str(path)}, *shown)
