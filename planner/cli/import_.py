"""`planner import`: what another program decided, in a plan; what another one trains, as a model."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json
from planner.errors import InputError

HF = "hf"


def import_order(
    form: Annotated[str, typer.Argument(metavar="FORM", help="torch-csv or hf")],
    file: Annotated[Path, typer.Argument(help="What the other program reads or wrote.")],
    into: Annotated[
        Path | None, typer.Option("--into", help="torch-csv: a plan file, with the layout, the data and the prices.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the plan or the model here.")] = None,
    json: Json = False,
) -> None:
    """Take another program's file: an order of passes into a plan, or the shape of a model.

    torch-csv: a schedule of torch.distributed.pipelining, passes alone (compute_only); the new plan says what it is
    worth. hf: a config.json of Hugging Face, or a folder with one, as a model for jobs; without -o on stdout. Nothing
    is fetched; what a model file cannot say is named, or refused.
    """
    from planner import files, pipeline
    from planner.cli import export_lines, model_lines, render
    from planner.export import FORMS

    if form not in (*FORMS, HF):
        raise InputError(f"no form is called `{form}`", where="FORM", fix=f"one of {', '.join((*FORMS, HF))}")
    if form == HF:
        model_lines.import_model(file, output, json)
        return
    if into is None or output is None:
        missing = "--into" if into is None else "-o"
        raise InputError(f"an order goes into a plan: {missing} is not given", where=missing, fix="--into PLAN -o NEW")
    old = pipeline.read_plan(into)
    plan = pipeline.import_order(form, file, old)
    before = sum(score.value for score in pipeline.simulate(old))
    files.write(output, plan)
    render.emit(json, export_lines.imported_summary(before, plan, output), *export_lines.imported(before, plan, output))
