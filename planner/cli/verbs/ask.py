"""`planner ask`: a question in one line, answered by the plan of the job that it becomes; `planner init`: the same
questions one by one, and the files of that job.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    Build,
    Effort,
    Json,
    Mtp,
    Seed,
    Within,
    audio_names,
    cluster_names,
    counted_devices,
    image_names,
    length_names,
    model_names,
    parse_within,
    software_names,
)
from planner.errors import InputError
from planner.printable import one_line, printable

if TYPE_CHECKING:
    from planner.specs.inputs import JobOptions
    from planner.specs.layers.stack import InputUnit
    from planner.workflows.questions import Question

Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Folder for the job, its cluster and the plan; default: named after them."),
]


def ask(
    batch: Annotated[int | None, typer.Option(help="Samples of a step; default: 8 a GPU.", min=1)] = None,
    model: Annotated[str, typer.Option(help="A shipped model, or a model file.", autocompletion=model_names)] = "",
    hf: Annotated[Path | None, typer.Option(help="A config.json of Hugging Face in place of --model.")] = None,
    build: Build = False,
    mtp: Mtp = False,
    gpus: Annotated[
        str, typer.Option(help="GPUs in all, and their device, such as 64xh100.", autocompletion=counted_devices)
    ] = "",
    nodes: Annotated[int | None, typer.Option(help="Nodes that they are in; default: 8 GPUs a node.", min=1)] = None,
    nics: Annotated[
        str | None, typer.Option(help="Adapters of a node, such as 8x400Gb; default: as is usual with the device.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="A cluster, or its file, in place of --gpus.", autocompletion=cluster_names)
    ] = "",
    seq: Annotated[
        int | None,
        typer.Option(
            help="Tokens of every sequence; with --images or --audio: of its text, default: 512; with --lengths: of "
            "the longest one kept.",
            min=1,
        ),
    ] = None,
    lengths: Annotated[
        str,
        typer.Option(
            help="A distribution, a file of lengths, or a folder of tokens or samples.", autocompletion=length_names
        ),
    ] = "",
    images: Annotated[
        str,
        typer.Option(
            help="Images of each sample in pixels, such as 1280x960, 1280x960+640x480 or 1280x960*4; or a "
            "distribution, such as coco.",
            autocompletion=image_names,
        ),
    ] = "",
    audio: Annotated[
        str,
        typer.Option(
            help="Clips of sound of each sample in seconds, such as 7.2 or 7.2+3; or a distribution, such as "
            "librispeech.",
            autocompletion=audio_names,
        ),
    ] = "",
    pool: Annotated[
        str,
        typer.Option(
            help="GPUs that may be rented, in place of --gpus: at most so many of each kind, such as "
            "4096xh100,512xa100, or at a price an hour 512xa100@1.80; with + in place of the comma, several at once.",
            autocompletion=counted_devices,
        ),
    ] = "",
    tokens: Annotated[str, typer.Option(help="Tokens of the whole run, such as 1T, for its days and dollars.")] = "",
    budget: Annotated[str, typer.Option(help="Dollars that the run may cost, such as 2e6 or 2M.")] = "",
    days: Annotated[float | None, typer.Option(help="Days in which the run is to be done.")] = None,
    software: Annotated[
        str, typer.Option(help="Training framework; any: launch or not.", autocompletion=software_names)
    ] = "planner",
    loader: Annotated[
        Path | None, typer.Option(help="Stages of the data loader, which planner profile --loader measures.")
    ] = None,
    output: Folder = None,
    seed: Seed = 0,
    effort: Effort = 2,
    within: Within = None,
    json: Json = False,
) -> None:
    """Ask for the best plan in one line, such as --model llama-3-70b --gpus 64xh100 --seq 8192 --batch 1024, or --model
    qwen2.5-vl-7b --gpus 32xa100 --images 1280x960, or which GPUs to rent: --model llama-3-70b --pool
    4096xh100,512xa100 --tokens 1T --budget 2e6 --days 30.

    Writes the job to go on with, solves it with every strategy that plans such a model, and prints the answer; of a
    run static layouts, and the front of time and money. Exit code 3: nothing fits, or keeps budget and deadline.
    """
    from planner import files, pipeline
    from planner.cli import progress, render
    from planner.cli.views import json_answers, plan_tables
    from planner.specs.inputs import JobOptions
    from planner.workflows.question_run import RunQuestion
    from planner.workflows.questions import PLAN_FILE, Question, question_import, write_question

    of_run = RunQuestion(tokens, budget, days, pool)
    question = Question(
        batch, model, hf, gpus, nodes, nics, cluster, lengths, seq, software, images, audio, of_run, build, mtp, loader
    )
    options = JobOptions(seed=seed, effort=effort, within=parse_within(within))
    of_whole_run = of_run.run is not None
    job = write_question(question, output)
    if hf:
        from planner.cli.views.imported_model import import_lines

        render.note(*import_lines(question_import(question), None))
    if of_whole_run:
        ask_run(job, options, json)
        return
    with progress.progress_bar("solving", "batches") as on_batch:
        solved = pipeline.solve(str(job), options, on_batch)
    path = job.parent / PLAN_FILE
    files.write(path, solved.plan)
    answer = {**json_answers.solve_answer(solved, path), "job": str(job)} if json else {}
    render.emit(json, answer, plan_tables.solve_lines(solved, path, f"; or edit {job}, and planner solve it"))


def ask_run(job: Path, options: "JobOptions", json: bool) -> None:
    """Print what a run takes on the best choice, and the front of time and money; write the plan and the page."""
    from planner import files, pipeline
    from planner.cli import progress, render
    from planner.cli.views import pool_tables
    from planner.report import pool_page
    from planner.workflows.questions import PAGE_FILE, PLAN_FILE

    with progress.progress_bar("solving", "choices") as on_offer:
        answer = pipeline.choose(str(job), options, on_offer)
    plan, page = job.parent / PLAN_FILE, job.parent / PAGE_FILE
    files.write(plan, answer.solved.plan)
    files.write_text(page, pool_page(answer, answer.solved.plan.name).html())
    told = {**pool_tables.pool_answer(answer, plan), "job": str(job), "page": str(page)} if json else {}
    render.emit(json, told, *pool_tables.pool_lines(answer, plan, page))


def init() -> None:
    """Ask for model, GPUs, lengths and software one by one, and write the job to solve."""
    from planner.workflows import questions

    question = questions.Question(batch=1)
    asked: tuple[tuple[str, str, str | None, InputUnit | None], ...] = (  # field, text, default, of who reads what
        ("model", "Model: a name (planner list models), a model file, or a config.json", None, None),
        ("gpus", "GPUs in all, such as 64xh100", None, None),
        ("nics", "Adapters of a node, such as 8x400Gb; empty: as is usual", "", None),
        ("lengths", "Lengths: tokens of every sequence, a distribution, or a file", None, None),
        ("images", "Images of each sample, such as 1280x960; empty: none", "", "patches"),
        ("audio", "Seconds of sound of each sample, such as 7.2; empty: none", "", "frames"),
        ("batch", "Sequences of a step", None, None),
        ("software", "Training framework; any: launch or not", "planner", None),
    )
    for name, text, default, unit in asked:
        if unit is None or questions.reads(question, unit):
            question = prompted(partial(questions.with_answer, question, name), text, default)
    folder = typer.prompt("Folder", default=one_line(questions.question_name(question)))
    job = questions.write_question(question, Path(folder))
    typer.echo(printable(f"written: {job}\nnext: planner solve {job}"))


def prompted(answered: Callable[[str], "Question"], text: str, default: str | None) -> "Question":
    """The question with one more answer; asks again until there is one that can be used."""

    def use(answer: str) -> "Question":
        try:
            return answered(answer.strip())
        except InputError as error:
            raise typer.BadParameter(one_line(f"{error.message}; {error.fix}")) from error

    with_answer: Question = typer.prompt(text, default=default, value_proc=use, show_default=bool(default))
    return with_answer
