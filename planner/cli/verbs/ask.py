"""`planner ask`: a question in one line, answered by the plan of the job that it becomes."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.complete import cluster_names, length_names, model_names, software_names
from planner.cli.options import Effort, Json, Seed

Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Folder for the job, its cluster and the plan; default: named after them."),
]


def ask(
    batch: Annotated[int, typer.Option(help="Sequences of a step.", min=1)],
    model: Annotated[str, typer.Option(help="A shipped model, or a model file.", autocompletion=model_names)] = "",
    hf: Annotated[Path | None, typer.Option(help="A config.json of Hugging Face in place of --model.")] = None,
    gpus: Annotated[str, typer.Option(help="GPUs in all, and their device, such as 64xh100.")] = "",
    nodes: Annotated[int | None, typer.Option(help="Nodes that they are in; default: 8 GPUs a node.", min=1)] = None,
    nics: Annotated[
        str | None, typer.Option(help="Adapters of a node, such as 8x400Gb; default: as is usual with the device.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="A cluster, or its file, in place of --gpus.", autocompletion=cluster_names)
    ] = "",
    seq: Annotated[
        int | None, typer.Option(help="Tokens of every sequence; with --lengths: of the longest one kept.", min=1)
    ] = None,
    lengths: Annotated[
        str,
        typer.Option(help="A distribution, a file of lengths, or a folder of tokens.", autocompletion=length_names),
    ] = "",
    software: Annotated[
        str, typer.Option(help="Training framework; any: launch or not.", autocompletion=software_names)
    ] = "planner",
    output: Folder = None,
    seed: Seed = 0,
    effort: Effort = 2,
    json: Json = False,
) -> None:
    """Ask for the best plan in one line, such as --model llama-3-70b --gpus 64xh100 --seq 8192 --batch 1024.

    Writes the job to go on with, solves it with every strategy, and prints the answer. Exit code 3: nothing fits.
    """
    from planner import files, pipeline
    from planner.cli import progress, render
    from planner.cli.views import json_answers, plan_tables
    from planner.specs.inputs import JobOptions
    from planner.workflows.questions import PLAN_FILE, Question, write_question

    question = Question(batch, model, hf, gpus, nodes, nics, cluster, lengths, seq, software)
    job = write_question(question, output)
    with progress.progress_bar("solving", "batches") as on_batch:
        solved = pipeline.solve(str(job), JobOptions(seed=seed, effort=effort), on_batch)
    path = job.parent / PLAN_FILE
    files.write(path, solved.plan)
    answer = {**json_answers.solve_answer(solved, path), "job": str(job)} if json else {}
    render.emit(json, answer, plan_tables.solve_lines(solved, path, f"; or edit {job}, and planner solve it"))
