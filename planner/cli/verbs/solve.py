"""`planner solve`: turns a job into a plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import Effort, Job, Json, Mix, Seed

if TYPE_CHECKING:
    from planner.plan.plan_file import Plan
    from planner.specs.inputs import JobOptions


def solve(
    job: Job,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Plan file to write; `-` for stdout.")] = None,
    batches: Annotated[int, typer.Option(help="Plan this many consecutive batches.", min=1)] = 1,
    first_row: Annotated[
        int, typer.Option(help="Sample of the data at which the first batch begins, from 0.", min=0)
    ] = 0,
    lengths: Annotated[
        str | None, typer.Option(help="Read sequence lengths from this file instead of the job's.")
    ] = None,
    mix: Mix = None,
    seed: Seed = 0,
    effort: Effort = 2,
    static: Annotated[
        bool,
        typer.Option(
            "--static", help="Find the best single degree for all batches, and what planning each batch saves."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Solve a job: write the best plan found, with a proven bound.

    The same job gives the same bytes. Exit code 3: the job is infeasible, and the error names the binding constraint.
    """
    from planner import pipeline
    from planner.cli import progress, render
    from planner.cli.views import json_answers, plan_tables
    from planner.specs.inputs import JobOptions

    options = JobOptions(batches, first_row, seed, effort, lengths, mix)
    if static:
        solve_static(job, options, output, json)
        return
    with progress.progress_bar("solving", "batches") as on_batch:
        solved = pipeline.solve(job, options, on_batch)
    path = write_plan(solved.plan, output, ".plan.yaml")
    if path:
        answer = json_answers.solve_answer(solved, path) if json else {}
        render.emit(json, answer, plan_tables.solve_lines(solved, path))


def solve_static(job: str, options: "JobOptions", output: Path | None, json: bool) -> None:
    """Write the best plan with one degree for all batches, and what per-batch planning saves."""
    from planner import pipeline
    from planner.cli import progress, render
    from planner.cli.views import why_tables

    with progress.progress_bar("solving", "degrees") as on_degree:
        best = pipeline.static(job, options, on_degree)
    path = write_plan(best.plan, output, ".static.plan.yaml")
    if path:
        lines = (*why_tables.answer_lines(best.comparison), why_tables.static_path_line(path))
        render.emit(json, {**why_tables.why_answer(best.comparison), "plan": str(path)}, *lines)


def write_plan(plan: "Plan", output: Path | None, ending: str) -> Path | None:
    """Write the plan; returns the path, or None when it went to stdout, where nothing else may be printed then."""
    from planner import files
    from planner.cli import render

    if str(output) == "-":
        render.print_raw(files.dump(plan))
        return None
    path = output or Path(f"{plan.name}{ending}")
    files.write(path, plan)
    return path
