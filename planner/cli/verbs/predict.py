"""`planner predict` and `planner fits`: step time and memory of a fixed layout, without planning anything."""

import typer

from planner.cli.options import DOES_NOT_FIT, JobOrPlan, Json, Mix, Seed


def predict(
    job: JobOrPlan,
    seed: Seed = 0,
    lengths: str = typer.Option("", help="Read sequence lengths from this file instead of the job's."),
    mix: Mix = None,
    json: Json = False,
) -> None:
    """Predict a fixed layout: step time with its parts, MFU, memory.

    Exit code 3: it does not fit in memory, which the answer says first; its times are those it would take.

    Degrees that fix.layouts does not give are 1; ZeRO stage and recomputation come from the job's `layout`.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import prediction_tables
    from planner.specs.inputs import JobOptions

    prediction = pipeline.predict(job, JobOptions(seed=seed, lengths=lengths or None, mix=mix))
    render.emit(json, prediction_tables.prediction_summary(prediction), *prediction_tables.prediction_lines(prediction))
    if not prediction.fits:
        raise typer.Exit(DOES_NOT_FIT)


def fits(
    job: JobOrPlan,
    seed: Seed = 0,
    lengths: str = typer.Option("", help="Read sequence lengths from this file instead of the job's."),
    mix: Mix = None,
    json: Json = False,
) -> None:
    """Check whether a fixed layout fits in memory, how likely, and what uses it.

    Exit code 3: it does not fit; the answer names the smallest change that would.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import prediction_tables
    from planner.specs.inputs import JobOptions

    answer = pipeline.fits(job, JobOptions(seed=seed, lengths=lengths or None, mix=mix))
    render.emit(json, prediction_tables.fits_summary(answer), *prediction_tables.fits_lines(answer))
    if not answer.fits:
        raise typer.Exit(DOES_NOT_FIT)
