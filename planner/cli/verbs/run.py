"""`planner run`: trains with a plan."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    CONSTANT,
    Dtype,
    Json,
    LearningRateScheduleName,
    OnSpikeName,
    PlanFile,
    Seed,
    optional_duration,
    written,
)
from planner.errors import InputError
from planner.extras import require_torch
from planner.specs.run_option_help import OPTION_HELP
from planner.units import percent, plural

if TYPE_CHECKING:
    from planner.ledger import ComparedRun
    from planner.plan.plan_file import Plan
    from planner.runtime import LocalDevices, Progress, RunOptions
    from planner.workflows.elastic import ElasticRun


def run(
    plan: PlanFile,
    steps: Annotated[int | None, typer.Option(help=OPTION_HELP["steps"], min=1)] = None,
    verify: Annotated[bool, typer.Option("--verify", help=OPTION_HELP["verify"])] = False,
    dtype: Dtype = None,
    learning_rate: Annotated[float, typer.Option(help=OPTION_HELP["learning_rate"], min=0.0)] = 1e-3,
    schedule: Annotated[LearningRateScheduleName, typer.Option(help=OPTION_HELP["schedule"])] = CONSTANT,
    warmup: Annotated[int, typer.Option(help=OPTION_HELP["warmup"], min=0)] = 0,
    clip: Annotated[float | None, typer.Option(help=OPTION_HELP["clip"])] = None,
    betas: Annotated[tuple[float, float], typer.Option(help=OPTION_HELP["betas"])] = (0.9, 0.999),
    weight_decay: Annotated[float, typer.Option(help=OPTION_HELP["weight_decay"], min=0.0)] = 0.01,
    max_time: Annotated[str | None, typer.Option(help=OPTION_HELP["max_time"])] = None,
    metrics: Annotated[Path | None, typer.Option(help=OPTION_HELP["metrics"])] = None,
    trace: Annotated[
        Path | None,
        written(help="Write the measured steps here, for `simulate --measured` and `report --measured`."),
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="The plan's job, to plan further batches; needed if it is not beside the plan.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help=OPTION_HELP["data"])] = None,
    weights: Annotated[Path | None, typer.Option(help=OPTION_HELP["weights"])] = None,
    allow_different: Annotated[
        list[str] | None, typer.Option(help=OPTION_HELP["allow_different"], metavar="KEY")
    ] = None,
    save: Annotated[Path | None, typer.Option(help=OPTION_HELP["save"])] = None,
    save_every: Annotated[int | None, typer.Option(help=OPTION_HELP["save_every"], min=1)] = None,
    keep: Annotated[int, typer.Option(help=OPTION_HELP["keep"], min=1)] = 1,
    keep_every: Annotated[int | None, typer.Option(help=OPTION_HELP["keep_every"], min=1)] = None,
    resume: Annotated[Path | None, typer.Option(help=OPTION_HELP["resume"])] = None,
    elastic: Annotated[bool, typer.Option("--elastic", help=OPTION_HELP["elastic"])] = False,
    features: Annotated[Path | None, typer.Option(help=OPTION_HELP["features"])] = None,
    hang_after: Annotated[
        str | None,
        typer.Option(help="A rank that does not go on is named after so long; default: 8s, or 4 times its prediction."),
    ] = None,
    on_spike: Annotated[OnSpikeName, typer.Option(help=OPTION_HELP["on_spike"])] = OnSpikeName.log,
    spike_steps: Annotated[int, typer.Option(help=OPTION_HELP["spike_steps"], min=1)] = 8,
    check_replicas: Annotated[int | None, typer.Option(help=OPTION_HELP["check_replicas"], min=1)] = None,
    record: Annotated[Path | None, typer.Option(help=OPTION_HELP["record"])] = None,
    memory_snapshot: Annotated[Path | None, typer.Option(help=OPTION_HELP["memory_snapshot"])] = None,
    seed: Seed = 0,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Keep this run out of `planner ledger`.")] = False,
    json: Json = False,
) -> None:
    """Train with a plan, and compare predicted with measured times.

    Ctrl-C, SIGTERM and SIGHUP end the run after the current step, save and report it; a second one ends it at once.

    Starts one process per rank on this machine; on a cluster, use torchrun: torchrun --nproc-per-node N -m
    planner.runtime PLAN.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import json_answers, own_run_tables, run_tables

    require_torch("run")
    from planner.runtime import RunOptions, TrainingOptions

    read = pipeline.read_plan(plan)
    options = RunOptions(
        steps=steps,
        verify=verify,
        dtype=dtype.value if dtype else None,
        seed=seed,
        training=TrainingOptions(learning_rate, schedule.value, warmup, clip, betas, weight_decay),
        max_seconds=optional_duration(max_time, "--max-time"),
        metrics=metrics.absolute() if metrics else None,
        base=plan.parent,
        data=data.absolute() if data else None,
        weights=weights.absolute() if weights else None,
        allow_different=tuple(allow_different or ()),
        save=save.absolute() if save else None,
        save_every=save_every,
        keep=keep,
        keep_every=keep_every,
        resume=resume.absolute() if resume else None,
        elastic=elastic,
        features=features.absolute() if features else None,
        hang_seconds=optional_duration(hang_after, "--hang-after"),
        on_spike=on_spike.value,
        spike_steps=spike_steps,
        check_replicas=check_replicas,
        record=record.absolute() if record else None,
        memory_snapshot=memory_snapshot.absolute() if memory_snapshot else None,
        source=str(plan),
    )
    if trace and metrics and trace.resolve() == metrics.resolve():
        raise InputError("--trace and --metrics name the same file", where=str(trace), fix="name two files")
    outcome = trained(read, options, job)
    ran = outcome.ran
    trace_error = write_trace(trace, ran)
    lines = (
        *run_tables.resume_line(ran),
        *run_tables.run_lines(ran, None if trace_error else trace),
        *run_tables.checkpoint_lines(ran, outcome.options, steps, outcome.job),
    )
    render.emit(json, json_answers.elastic_answer(outcome), *lines)
    if not no_ledger:
        own_run_tables.add_to_ledger(ran)
    raise_failures(ran, trace_error)


def trained(read: "Plan", options: "RunOptions", job: str | None) -> "ElasticRun":
    """The run behind a progress bar, and its options with what it resumes from; with --elastic part by part, each
    behind one. Raises InputError, RunFailed, and Infeasible where no ranks that are left can go on.
    """
    from planner.cli import render
    from planner.runtime import require_quick_checks, resolve_resume, unenforced_shares
    from planner.workflows.elastic import ElasticRun, run_elastic

    options = resolve_resume(options)
    require_quick_checks(read, options)  # before a progress bar says that processes start
    warnings = warmup_warning(options.training.warmup, options.step_count(read)), unenforced_shares(read)
    for warning in filter(None, warnings):
        render.console(stderr=True).print(warning)
    if options.elastic:
        return run_elastic(
            read,
            options,
            job,
            train,
            lambda text: render.console(stderr=True).print(text, style="yellow", soft_wrap=True),
        )
    return ElasticRun(train(read, options, job), options, job, ())


def train(
    plan: "Plan",
    options: "RunOptions",
    job: str | None,
    devices: "LocalDevices | None" = None,
    on_step: "Callable[[Progress], None]" = lambda _: None,
) -> "ComparedRun":
    """Train behind a progress bar that shows the steps, of which `on_step` hears too."""
    from planner import pipeline
    from planner.cli import progress

    with progress.training_bar(plan) as on_progress, progress.report_interrupt(on_progress) as show:

        def hear(step: "Progress") -> None:
            on_step(step)
            show(step)

        return pipeline.run(plan, options, hear, job, devices)


def raise_failures(ran: "ComparedRun", trace_error: InputError | None) -> None:
    """Raises what went wrong once the run is reported: its trace, its parity with one process, an interrupt."""
    from planner.runtime import parity_failure, within_tolerance
    from planner.workflows.interrupts import exit_if_interrupted

    if trace_error:
        raise trace_error
    if ran.verified and ran.tolerance and not within_tolerance(ran.verified, ran.tolerance):
        raise parity_failure(ran.verified, ran.tolerance)
    exit_if_interrupted(ran)


def warmup_warning(warmup: int, steps: int) -> str:
    """A warning that the run ends within the warm-up; empty where it does not."""
    if warmup <= steps:
        return ""
    reached = percent(steps / warmup)
    whole = f"the run of {plural(steps, 'step')}"
    return f"--warmup {warmup} is longer than {whole}: the learning rate reaches only {reached} of its peak"


def write_trace(trace: Path | None, ran: "ComparedRun") -> InputError | None:
    """Write the trace, if asked for; returns the error if that failed, to be raised after the report of the run."""
    from planner.workflows.tracing import write_measured_trace

    try:
        if trace:
            write_measured_trace(trace, ran)
    except InputError as error:
        return error
    return None
