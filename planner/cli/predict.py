"""`planner predict`: what a layout that is fixed would take, without planning anything."""

import typer

from planner.cli.options import Job, Json, Seed


def predict(
    job: Job,
    seed: Seed = 0,
    lengths: str = typer.Option("", help="A file of lengths instead of the job's."),
    json: Json = False,
) -> None:
    """Predict a fixed layout: step time with its parts, MFU, memory.

    What fix.layouts leaves unsaid is 1; ZeRO stage and recomputation are as the job's `layout` has them.
    """
    from planner import pipeline
    from planner.cli import render, static_tables
    from planner.specs.inputs import Options

    found = pipeline.predict(job, Options(seed=seed, lengths=lengths or None))
    render.emit(json, static_tables.predicted_summary(found), *static_tables.predicted(found))
