"""`planner profile` measures this machine, `planner ledger` compares predictions with measurements, and `planner
calibrate` fits coefficients to them.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Dtype, Json, model_names, optional_duration, written
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
    shares: Annotated[
        str | None,
        typer.Option(
            metavar="SHARES",
            help="Instead: time modules on these shares of the device, and side by side on halves, such as `0.5,1`.",
        ),
    ] = None,
    settle: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN", help="Instead: train a plan and its ties in turn, a few steps each, to tell the quickest."
        ),
    ] = None,
    loader: Annotated[
        str | None,
        typer.Option(
            metavar="JOB|MODULE:OBJECT",
            help="Instead: measure the data loader of a job with a folder of samples, or of a dataset of torch.",
        ),
    ] = None,
    output: Annotated[
        Path | None, written("-o", "--output", help="File to write, instead of one in the user's cache.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure this machine: layers, optimizer, collectives; which of a plan's ties is the quickest; or a data loader.

    Jobs with `profile: auto` find the profile in the user's cache; an interrupted profile resumes where it stopped.
    With --settle the layouts that predictions cannot tell apart are trained from random weights, in turn and three
    times each; their plan files stay beside the plan, and `planner run` trains the one that is named. With --shares the
    profile gets what modules take that share the device, which plans with shares are priced by.
    """
    from planner.cli import progress, render
    from planner.cli.views import json_answers, profile_tables
    from planner.workflows import evidence

    require_torch("profile")
    if loader is not None:
        profile_loader(loader, output, json, (model, ranks, dtype, quick, settle, shares))
        return
    if settle is not None:
        settle_ties(settle, json, (model, ranks, dtype, quick, output, shares))
        return
    if model is None:
        raise InputError("no model is given", where="MODEL", fix="a name that `planner list` shows, or a model file")
    measuring = evidence.ProfileSettings(ranks, dtype.value if dtype else None, quick, shares_of(shares))
    if shares is not None and (ranks is not None or quick):
        what = "shares are timed on one device"
        raise InputError(what, where="--shares", fix="leave out --ranks and --quick")
    with progress.progress_bar("profiling", "measurements") as on_progress:
        measured, path = evidence.measure_profile(model, measuring, output, on_progress)
    render.emit(json, json_answers.profile_answer(measured, path), *profile_tables.profile_tables(measured, path))


def profile_loader(reference: str, output: Path | None, json: bool, others: tuple[object, ...]) -> None:
    """The answer of --loader. Raises InputError where options of measuring layers are given too."""
    from planner.cli import progress, render
    from planner.cli.views import loader_tables
    from planner.workflows import evidence

    if any(others):
        fix = "leave out MODEL, --ranks, --dtype, --quick, --shares and --settle"
        raise InputError("a loader is measured alone", where="--loader", fix=fix)
    bar = progress.progress_bar("profiling", "measurements")
    with bar as on_progress, contextlib.redirect_stdout(sys.stderr):  # what a dataset prints is no answer
        measured, path = evidence.measure_data_loader(reference, output, on_progress)
    render.emit(json, {"loader": str(path), "measured": measured}, *loader_tables.profiled_lines(measured, path))


def shares_of(text: str | None) -> tuple[float, ...]:
    """Shares of a device, as `--shares 0.25,0.5,0.75,1` gives them. Raises InputError."""
    from planner.errors import InputError

    try:
        found = tuple(dict.fromkeys(float(each) for each in text.split(","))) if text is not None else ()
    except ValueError:
        found = (0.0,)
    if not all(0 < each <= 1 for each in found):
        raise InputError(f"`{text}` is no list of shares", where="--shares", fix="such as 0.25,0.5,0.75,1")
    return found


def settle_ties(plan: Path, json: bool, others: tuple[object, ...]) -> None:
    """The answer of --settle. Raises InputError where options of measuring layers are given too."""
    from planner.cli import progress, render
    from planner.cli.views import settling_tables
    from planner.workflows import settling

    if any(others):
        fix = "leave out MODEL, --ranks, --dtype, --quick, --shares and --output: the plan says what is trained"
        raise InputError("a plan is settled as it is", where="--settle", fix=fix)
    with progress.progress_bar("training", "runs") as on_run:
        found = settling.settle(plan, on_run)
    render.emit(json, settling_tables.settling_answer(found), *settling_tables.settling_tables(found))


def calibrate(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Measured tables of kernels, or published step times, as CSV; or a plan that ran."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File for the profile; folder for frameworks and kernel rates."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="For tables: the device on which they were measured.")] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            help="For published records: predict this source from a fit of the others; `each`: every source in turn."
        ),
    ] = None,
    measured: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Of a plan: what a step of it took, such as `14.2s`.")
    ] = None,
    from_run: Annotated[
        bool, typer.Option("--from-run", help="Of a plan: what a step took when `planner run` last trained it.")
    ] = False,
    from_trace: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="TRACE",
            help="Recordings of torch.profiler with shapes, one of each rank, or a folder; of the plan, if given.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Fit kernel rates to measured tables or recordings, or frameworks to published step times or one run of a plan.

    The columns of the files decide which. A run shifts coefficients as far as one run can tell. Coefficients that the
    data cannot determine keep their assumed values, and are named.
    """
    from planner.cli import progress, render
    from planner.cli.views import calibration_tables as views
    from planner.errors import InputError
    from planner.workflows import evidence

    seconds = optional_duration(measured, "--measured")
    if seconds == 0.0:
        raise InputError("a step takes longer than that", where="--measured", fix="seconds above 0")
    if from_trace:
        if leave_out or ((seconds or from_run) and folder is None):
            fix = "give the plan that was recorded first, and no --leave-out"
            raise InputError("a step's time is of a plan", where="--from-trace", fix=fix)
        with progress.progress_bar("calibrating", "traces") as on_progress:
            of_plan = (folder, seconds, from_run)
            made, path = evidence.calibrate_traces(from_trace, of_plan, device, output, on_progress)
        render.emit(json, views.kernel_answer(made, path), *views.kernel_tables(made, path))
        return
    if folder is None:
        fix = "a folder of CSV files; a plan with --measured or --from-run; or --from-trace"
        raise InputError("nothing is given to calibrate with", where="FOLDER", fix=fix)
    if measured is not None or from_run:
        refuse_folder(folder, "--from-run" if from_run else "--measured")
        refuse_beside_a_run(measured is not None and from_run, device, leave_out)
        run, paths = evidence.calibrate_to_run(folder, seconds, output)
        render.emit(json, views.run_answer(run, paths), *views.run_tables(run, paths))
        return
    with progress.progress_bar("calibrating", "") as on_progress:
        if evidence.holds_published_records(folder):
            if device:
                raise InputError("these are published records of many devices", where="--device", fix="leave it out")
            fit, paths = evidence.calibrate_published(folder, output, leave_out or (), on_progress)
        else:
            if leave_out:
                fix = "omit it: a fifth of the shapes of each table is held out already"
                raise InputError("these are measured tables, not published sources", where="--leave-out", fix=fix)
            calibrated, path = evidence.calibrate_tables(folder, device, output, on_progress)
            render.emit(json, views.kernel_answer(calibrated, path), *views.kernel_tables(calibrated, path))
            return
    render.emit(json, views.framework_answer(fit, paths), *views.framework_tables(fit, paths))


def refuse_folder(plan: Path, option: str) -> None:
    """Raises InputError for what one run is of, where that is a folder and no plan."""
    from planner.errors import InputError

    if os.path.isdir(plan):
        raise InputError(f"{plan} is a folder, and a run is of a plan", where=option, fix="give the plan that ran")


def refuse_beside_a_run(both: bool, device: str | None, leave_out: list[str] | None) -> None:
    """Raises InputError for options that say two things of one run, or are of tables and records."""
    from planner.errors import InputError

    if both:
        raise InputError("the run was measured already", where="--from-run", fix="omit it, or --measured")
    for option, value in (("--device", device), ("--leave-out", leave_out)):
        if value:
            raise InputError("this option is for tables or published records", where=option, fix="omit it")


def ledger(
    directory: Annotated[
        Path | None, typer.Argument(help="A folder of published measurements; default: your own runs.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Also list every record, or every run.")] = False,
    source: Annotated[list[str] | None, typer.Option(help="Only this source of the folder; may be repeated.")] = None,
    json: Json = False,
) -> None:
    """Compare predictions with measurements: errors, bias, coverage.

    Every published record is predicted, or counted with the reason why not. Without a folder: how your own runs drift.
    """
    from planner.cli import render
    from planner.cli.views import ledger_tables, own_run_tables
    from planner.errors import InputError
    from planner.ledger import accuracy_json, default_path, drift_by_plan, read_entries
    from planner.workflows import evidence

    if directory is not None:
        account = evidence.published_account(directory, source or ())
        render.emit(json, accuracy_json(account, rows), *ledger_tables.ledger_tables(account, rows))
        return
    if source:
        raise InputError("this option is for published records", where="--source", fix="give their folder")
    entries, unread = read_entries(default_path())
    drifts = drift_by_plan(entries)
    pictures = own_run_tables.drift_tables(drifts, unread, default_path(), rows)
    render.emit(json, own_run_tables.summary(drifts, unread, default_path(), rows), *pictures)
