"""`planner export` writes a plan for another program; `planner import` reads another program's schedule into a plan, or
its model as a model file.
"""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import JobOrPlan, Json, export_names
from planner.errors import InputError

HF = "hf"


def export(
    plan: JobOrPlan,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="megatron: a launch script of Megatron-LM; torch-csv: a schedule of torch.distributed.pipelining.",
            autocompletion=export_names,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write; `-` for stdout.")],
    version: Annotated[str, typer.Option(help="Version to write for, such as 0.14; default: the newest.")] = "",
    json: Json = False,
) -> None:
    """Export a plan for another program, or the layout that a job fixes.

    megatron: a shell script that starts it with torchrun, complete but for data. What the program cannot be told is
    refused, with the best plan that it can. torch-csv: the pipeline schedule, as the multi-stage schedules of
    torch.distributed.pipelining load it. No other file is written over.
    """
    from planner.cli import render
    from planner.cli.views import export_lines
    from planner.files import require_unchanged, write_text
    from planner.workflows.launching import exported

    file = exported(plan, to, version)
    if str(output) == "-":
        render.print_raw(file.text)
        return
    require_unchanged(output, file.text, "name another file with -o, or remove this one")
    write_text(output, file.text)
    render.emit(json, export_lines.export_summary(file, to, output), *export_lines.export_lines(file, output))


def import_file(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="torch-csv or hf")],
    file: Annotated[Path, typer.Argument(help="The other program's file: a schedule, or a config.json.")],
    into: Annotated[
        Path | None, typer.Option("--into", help="torch-csv: the plan file that gives layout, data and prices.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write the plan or the model to.")
    ] = None,
    json: Json = False,
) -> None:
    """Import another program's file: a pipeline schedule into a plan, or a model.

    torch-csv: a schedule of torch.distributed.pipelining (format compute_only); the new plan states its step time. hf:
    a Hugging Face config.json, or a folder with one, as a model for jobs; printed to stdout without -o. Nothing is
    downloaded; what a model file cannot express is named, or refused.
    """
    from planner import files, pipeline
    from planner.cli import render
    from planner.cli.views import export_lines, imported_model
    from planner.export import ORDER_READERS, import_order_into

    if form not in (*ORDER_READERS, HF):
        raise InputError(
            f"no format is called `{form}`", where="FORMAT", fix=f"one of {', '.join((*ORDER_READERS, HF))}"
        )
    if form == HF:
        imported_model.import_model(file, output, json)
        return
    if into is None or output is None:
        missing = "--into" if into is None else "-o"
        raise InputError(
            f"a schedule is imported into a plan: {missing} is not given", where=missing, fix="--into PLAN -o NEW"
        )
    old, scores = pipeline.read_scored(into)
    plan = import_order_into(form, file, old)
    before = sum(score.step_seconds for score in scores)
    files.write(output, plan)
    render.emit(
        json, export_lines.import_summary(before, plan, output), *export_lines.import_lines(before, plan, output)
    )
