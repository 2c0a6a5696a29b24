"""`planner profile`: measures this machine."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.complete import model_names
from planner.cli.options import Dtype, Json
from planner.errors import InputError
from planner.extras import require_torch


def profile(
    model: Annotated[
        str | None, typer.Argument(help="A shipped model, or a model file.", autocompletion=model_names)
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Processes that measure at the same time: as many as will train.", min=1)
    ] = None,
    dtype: Dtype = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure fewer shapes, in under a minute.")] = False,
    settle: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN",
            help="Instead: train a plan and its ties in turn, a few steps each, to tell the quickest.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write, instead of one in the user's cache."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure this machine: layers, optimizer, collectives; or which of a plan's ties is the quickest on it.

    Jobs with `profile: auto` find the profile in the user's cache; an interrupted profile resumes where it stopped.
    With --settle the layouts that predictions cannot tell apart are trained from random weights, in turn and three
    times each; their plan files stay beside the plan, and `planner run` trains the one that is named.
    """
    from planner.cli import progress, render
    from planner.cli.views import json_answers, profile_tables
    from planner.workflows import evidence

    require_torch("profile")
    if settle is not None:
        settle_ties(settle, json, (model, ranks, dtype, quick, output))
        return
    if model is None:
        raise InputError("no model is given", where="MODEL", fix="a name that `planner list` shows, or a model file")
    measuring = evidence.ProfileSettings(ranks, dtype.value if dtype else None, quick)
    with progress.progress_bar("profiling", "measurements") as on_progress:
        measured, path = evidence.measure_profile(model, measuring, output, on_progress)
    render.emit(json, json_answers.profile_answer(measured, path), *profile_tables.profile_tables(measured, path))


def settle_ties(plan: Path, json: bool, others: tuple[object, ...]) -> None:
    """The answer of --settle. Raises InputError where options of measuring layers are given too."""
    from planner.cli import progress, render
    from planner.cli.views import settling_tables
    from planner.workflows import settling

    if any(others):
        fix = "leave out MODEL, --ranks, --dtype, --quick and --output: the plan says what is trained"
        raise InputError("a plan is settled as it is", where="--settle", fix=fix)
    with progress.progress_bar("training", "runs") as on_run:
        found = settling.settle(plan, on_run)
    render.emit(json, settling_tables.settling_answer(found), *settling_tables.settling_tables(found))
