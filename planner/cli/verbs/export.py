"""`planner export`: writes a plan, or a part of it, in the format of another program."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile


def export(
    plan: PlanFile,
    to: Annotated[str, typer.Option("--to", help="torch-csv: a schedule of torch.distributed.pipelining.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write; `-` for stdout.")],
    json: Json = False,
) -> None:
    """Export a plan for another program.

    torch-csv: the pipeline schedule, as the multi-stage schedules of torch.distributed.pipelining load it.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import export_lines
    from planner.export import export_plan
    from planner.files import write_text

    exported = export_plan(pipeline.read_plan(plan), to)
    if str(output) == "-":
        render.print_raw(exported.text)
        return
    write_text(output, exported.text)
    render.emit(json, export_lines.export_summary(exported, to, output), *export_lines.export_lines(exported, output))
