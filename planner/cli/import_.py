"""`planner import`: what another program decided, in a plan."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def import_order(
    form: Annotated[str, typer.Argument(metavar="FORM", help="torch-csv")],
    file: Annotated[Path, typer.Argument(help="What the other program reads or wrote.")],
    into: Annotated[Path, typer.Option("--into", help="A plan file: its layout, its data, its prices.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the plan here.")],
    json: Json = False,
) -> None:
    """Take an order from another program's file into a plan, and say what it is worth.

    torch-csv: a schedule of torch.distributed.pipelining, passes alone (compute_only).
    """
    from planner import files, pipeline
    from planner.cli import export_lines, render

    old = pipeline.read_plan(into)
    plan = pipeline.import_order(form, file, old)
    before = sum(score.value for score in pipeline.simulate(old))
    files.write(output, plan)
    render.emit(json, export_lines.imported_summary(before, plan, output), *export_lines.imported(before, plan, output))
