"""`planner solve`: turns a job into a plan."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from planner.cli.options import Effort, Job, Json, Mix, Seed, Within, parse_within, written
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.plan.plan_file import Plan
    from planner.specs.inputs import JobOptions


class RegretName(str, Enum):
    worst = "worst"
    expected = "expected"


class MixesAsked(NamedTuple):
    """What --static is asked of several mixes."""

    mixes: str
    regret: RegretName
    restart_s: float | None


def solve(
    job: Job,
    output: Annotated[Path | None, written("-o", "--output", help="Plan file to write; `-` for stdout.")] = None,
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
    within: Within = None,
    static: Annotated[
        bool,
        typer.Option(
            "--static", help="Find the best single degree for all batches, and what planning each batch saves."
        ),
    ] = False,
    mixes: Annotated[
        str | None,
        typer.Option(
            help="With --static: one set of layouts of all modules for these mixes, as 1:9,5:5,9:1, or in the order of "
            "a run with their steps, as 1:9=2000,5:5=500; the plan is that of --mix, else of the first."
        ),
    ] = None,
    regret: Annotated[
        RegretName | None, typer.Option(help="Of --mixes: least regret at the worst mix (default), or over all steps.")
    ] = None,
    restart_s: Annotated[
        float | None,
        typer.Option(help="Of --mixes: seconds that a restart with other layouts takes; assumed: 600.", min=0.0),
    ] = None,
    json: Json = False,
) -> None:
    """Solve a job: write the best plan found, with a proven bound.

    The same job gives the same bytes. Exit code 3: the job is infeasible, and the error names the binding constraint.
    """
    from planner import pipeline
    from planner.cli import progress, render
    from planner.cli.views import json_answers, plan_tables
    from planner.specs.inputs import JobOptions

    options = JobOptions(batches, first_row, seed, effort, lengths, mix, parse_within(within))
    if mixes is not None:
        require_static(static)
        solve_mixes(job, MixesAsked(mixes, regret or RegretName.worst, restart_s), options, output, json)
        return
    refuse_without_mixes({"--regret": regret, "--restart-s": restart_s})
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
    from planner.cli.views import static_tables, why_tables

    with progress.progress_bar("solving", "degrees") as on_degree:
        best = pipeline.static(job, options, on_degree)
    path = write_plan(best.plan, output, ".static.plan.yaml")
    if path:
        lines = (*static_tables.static_lines(best.comparison), static_tables.static_path_line(path))
        render.emit(json, {**why_tables.why_answer(best.comparison), "plan": str(path)}, *lines)


def require_static(static: bool) -> None:
    """Raise InputError where mixes are given without --static."""
    if not static:
        message = "one set of layouts for several mixes is a static plan"
        raise InputError(message, where="--mixes", fix="--static --mixes ...; or --mix, for one mix")


def refuse_without_mixes(given: dict[str, object]) -> None:
    """Raise InputError for an option that says nothing without mixes."""
    for option, value in given.items():
        if value is not None:
            raise InputError("this option is of --mixes", where=option, fix="--static --mixes 1:9,5:5,9:1, or omit it")


def solve_mixes(job: str, asked: MixesAsked, options: "JobOptions", output: Path | None, json: bool) -> None:
    """Write the plan of the best layouts for several mixes, and what they take at each of them."""
    from dataclasses import replace

    from planner import pipeline
    from planner.cli import progress, render
    from planner.cli.views import static_tables, why_tables
    from planner.specs.workload.mix_schedule import parse_mixes
    from planner.why import MixChoice

    choice = MixChoice(parse_mixes(asked.mixes), asked.regret.value)
    if asked.restart_s is not None:
        choice = replace(choice, restart_seconds=asked.restart_s)
    with progress.progress_bar("solving", "") as on_mix:
        best = pipeline.mixes(job, choice, options, on_mix)
    path = write_plan(best.plan, output, ".static.plan.yaml")
    if path:
        lines = (*static_tables.mix_lines(best.comparison), static_tables.static_path_line(path))
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
