"""`planner check`: compares plans, as a gate in CI."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def check(
    old: Annotated[Path, typer.Argument(help="A plan, or a folder of cases (job.yaml + plan.yaml each).")],
    new: Annotated[
        Path | None, typer.Argument(help="The plan to compare it with; omitted for a folder of cases.")
    ] = None,
    value: Annotated[
        float, typer.Option(help="Tolerated increase of the objective value, relative: 0.02 is 2 %.", min=0.0)
    ] = 0.02,
    gap: Annotated[
        float,
        typer.Option(help="Tolerated increase of the optimality gap, absolute: 0.01 is one percentage point.", min=0.0),
    ] = 0.01,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table, for a comment in a code review.")
    ] = False,
    json: Json = False,
) -> None:
    """Compare two plans, or re-solve a folder of cases.

    Exit code 0: passed; 1: a regression, or an illegal new plan.
    """
    from planner import pipeline
    from planner.check import Tolerances, exit_code, to_markdown
    from planner.cli import progress, render
    from planner.cli.views import json_answers, plan_tables

    with progress.progress_bar("checking", "cases") as on_case:
        found = pipeline.check(old, new, Tolerances(value, gap), on_case)
    if markdown:
        render.print_raw(to_markdown(found))
    else:
        render.emit(json, json_answers.findings_answer(found), plan_tables.finding_lines(found))
    raise typer.Exit(exit_code(found))
