"""`planner fits`: whether a layout that is fixed fits into memory."""

import typer

from planner.cli.options import Job, Json, Seed

NO = 3  # exit code: as of any job that cannot be met


def fits(
    job: Job,
    seed: Seed = 0,
    lengths: str = typer.Option("", help="A file of lengths instead of the job's."),
    json: Json = False,
) -> None:
    """Say whether a fixed layout fits: yes or no, how sure, who uses what.

    Exit code 3: it does not; the answer names the smallest change that does.
    """
    from planner import pipeline
    from planner.cli import render, static_tables
    from planner.specs.inputs import Options

    found = pipeline.fits(job, Options(seed=seed, lengths=lengths or None))
    render.emit(json, static_tables.fits_summary(found), *static_tables.fits(found))
    if not found.yes:
        raise typer.Exit(NO)
