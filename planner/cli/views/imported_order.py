"""Imports a schedule into a plan, and prints what its step takes."""

from pathlib import Path

from planner import files, pipeline
from planner.cli import render
from planner.cli.views import export_lines
from planner.errors import InputError
from planner.export import import_order_into


def import_order(form: str, file: Path, into: Path | None, output: Path | None, json: bool) -> None:
    """Write a plan with the order of a file to `output`. Raises InputError and Infeasible."""
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
