"""`planner export` writes a plan for another program; `planner import` reads another program's launch as a job, its
schedule into a plan, its model as a model file, or its embedding tables.
"""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import (
    DOES_NOT_FIT,
    HF,
    TORCHREC,
    Build,
    JobOrPlan,
    Json,
    Mtp,
    export_names,
    import_names,
    target_names,
)
from planner.errors import InputError


def export(
    plan: JobOrPlan,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="megatron, torchtitan, deepspeed or accelerate: what starts it there; planner: in its own runtime; "
            "torch-csv: a schedule of torch.distributed.pipelining; torchrec: where embedding tables are.",
            autocompletion=export_names,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write; `-` for stdout.")],
    version: Annotated[str, typer.Option(help="Version to write for, such as 0.14; default: the newest.")] = "",
    launcher: Annotated[
        str, typer.Option(help="torchrun, slurm or kubernetes: write its file, which starts the program's.")
    ] = "",
    better: Annotated[
        bool, typer.Option("--better", help="Write what the best plan of the same problem changes, as a diff of flags.")
    ] = False,
    json: Json = False,
) -> None:
    """Export a plan for another program, or the layout that a job fixes.

    megatron and torchtitan 0.3: a shell script that starts it with torchrun; torchtitan 0.2, deepspeed and accelerate:
    its settings; all complete but for data. What the program cannot be told is refused, with the best plan that it can.
    planner: a script that starts its own runtime. torch-csv: the pipeline schedule, as the multi-stage schedules of
    torch.distributed.pipelining load it. torchrec: a module with its sharding plan of embedding tables. No other file
    is written over.

    Exit code 3: the plan does not fit in memory, which its file says too; it is written all the same.
    """
    from planner.cli import render
    from planner.cli.views import export_lines
    from planner.files import require_parent, require_unchanged, write_text
    from planner.workflows import launching

    if better and launcher:
        raise InputError("a change of arguments starts nothing", where="--launcher", fix="leave out one of the two")
    file = launching.better(plan, to, version) if better else launching.exported(plan, to, version, launcher)
    if str(output) == "-":
        render.print_raw(file.text)
        require_fitting(file.note)
        return
    require_parent(output)
    require_unchanged(output, file.text, "name another file with -o, or remove this one")
    write_text(output, file.text)
    render.emit(json, export_lines.export_summary(file, to, output), *export_lines.export_lines(file, output))
    require_fitting(file.note)


def require_fitting(unfit: str) -> None:
    """Say on stderr, and by the exit code, that an exported plan does not fit; empty: it does."""
    from planner.cli import render

    if unfit:
        render.note(unfit)
        raise typer.Exit(DOES_NOT_FIT)


def import_file(
    form: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="megatron, torchtitan, deepspeed, accelerate, torch-csv, hf or torchrec",
            autocompletion=import_names,
        ),
    ],
    file: Annotated[
        Path, typer.Argument(help="The other program's file: a script, settings, a schedule, config.json, tables.")
    ],
    into: Annotated[
        Path | None, typer.Option("--into", help="torch-csv: the plan file that gives layout, data and prices.")
    ] = None,
    gpus: Annotated[
        str, typer.Option(help="GPUs in all, and their device, such as 64xh100, where a file starts training.")
    ] = "",
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="What a launch file computes or leaves open; repeatable."),
    ] = None,
    build: Build = False,
    mtp: Mtp = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write the plan, model or tables to, or folder for the job."),
    ] = None,
    json: Json = False,
) -> None:
    """Import another program's file: a launch file as a job, a pipeline schedule into a plan, a model, or tables.

    megatron: a shell script that starts pretrain_gpt.py, or its arguments as YAML; torchtitan: a TOML of 0.2, or a
    script with the flags of 0.3; deepspeed: its JSON; accelerate: its YAML. Each becomes a job with that layout fixed,
    to ask whether it fits (planner fits), how long it takes (predict), why not another (why-not), and what is better
    (export --better). Literal variables are expanded; what is computed, or left to the training script, is asked for
    by name. torch-csv: a schedule of torch.distributed.pipelining (format compute_only); the new plan states its step
    time. hf: a Hugging Face config.json, or a folder with one, as a model for jobs; printed to stdout without -o.
    Nothing is downloaded; what a model file cannot express is named, or refused. With --build: of any kind that
    transformers has a class for, built without weights and described by its matrices; with --mtp: with layers that
    predict ahead: both can be planned and priced, and are not trained. torchrec: the fields of a module's
    EmbeddingBagConfigs as a list in JSON or YAML, or its Python file, which is not executed: as embedding tables.
    """
    from planner.cli.views import imported_launch, imported_model, imported_order, imported_tables

    if form not in import_names(""):
        fix = f"one of {', '.join(import_names(''))}"
        raise InputError(f"no format is called `{form}`", where="FORMAT", fix=fix)
    if form == HF:
        imported_model.import_model(file, output, build, mtp, json)
    elif form == TORCHREC:
        imported_tables.import_tables(file, output, json)
    elif form in target_names():
        imported_launch.import_launch_file(form, file, gpus, given or [], output, json)
    else:
        imported_order.import_order(form, file, into, output, json)
