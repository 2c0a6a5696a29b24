"""`planner check`: compares plans, as a gate in CI."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, written


def check(
    old: Annotated[Path, typer.Argument(help="A plan, or a folder of cases (job.yaml + plan.yaml each).")],
    new: Annotated[
        Path | None, typer.Argument(help="The plan to compare it with; omitted for a folder of cases.")
    ] = None,
    value: Annotated[
        str, typer.Option(help="Tolerated increase of the objective value, such as 3%, where no check.yaml says it.")
    ] = "2%",
    gap: Annotated[
        str, typer.Option(help="Tolerated increase of the optimality gap in points, where no check.yaml says it.")
    ] = "1%",
    judge_changed_inputs: Annotated[
        bool, typer.Option("--judge-changed-inputs", help="Judge another model, data or cluster, too: by token.")
    ] = False,
    allow_unjudged: Annotated[
        bool, typer.Option("--allow-unjudged", help="Let pass what cannot be judged, and a folder of no jobs.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Solve the jobs of a folder, and write the plans that changed or are new.")
    ] = False,
    verdicts: Annotated[
        Path | None, typer.Option(help="A folder that keeps which cases are unchanged: these are not solved again.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a comment in a code review.")
    ] = False,
    junit: Annotated[Path | None, written(help="Write the cases as tests of JUnit's XML to this file.")] = None,
    annotations: Annotated[
        Path | None, written(help="Write annotations of GitHub, a command a line, to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare two plans, or re-solve a folder of cases.

    Exit code 0: passed, or updated; 1: a regression, an illegal plan, or a difference that cannot be judged.
    """
    from planner import check as gate
    from planner import files, pipeline
    from planner.cli import progress, render
    from planner.cli.views import gate_markdown, json_answers, plan_tables
    from planner.specs.base import share_of

    shares = share_of(value, "--value"), share_of(gap, "--gap")
    tolerances = gate.Tolerances(*shares, judge_changed_inputs=judge_changed_inputs, allow_unjudged=allow_unjudged)
    with progress.progress_bar("checking", "cases") as on_case:
        written = pipeline.update(old, on_case) if update else []
        cases = [] if update else pipeline.gate(old, new, tolerances, on_case, verdicts)
    if update:
        render.emit(json, {"written": [*map(str, written)]}, plan_tables.written_lines(written))
        raise typer.Exit
    found = gate.all_findings(cases)
    for path, text in ((junit, gate.junit), (annotations, gate.annotations)):
        if path:
            files.write_text(path, text(cases))
    if markdown:
        render.print_raw(gate_markdown.gate_markdown(cases))
    else:
        render.emit(json, json_answers.findings_answer(found), plan_tables.finding_lines(found))
    raise typer.Exit(gate.exit_code(found))
