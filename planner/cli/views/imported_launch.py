"""Imports a launch file as a job, and prints what was taken for what it does not say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.cli import render
from planner.errors import InputError
from planner.plan.descriptions import layout_text
from planner.workflows.imported_launches import ImportedLaunch, import_launch, import_notes


def import_launch_file(form: str, file: Path, gpus: str, given: list[str], output: Path | None, json: bool) -> None:
    """Write the job of a launch file into the folder `output`. Raises InputError."""
    if output is None:
        raise InputError("a launch file becomes a job: -o is not given", where="-o", fix="-o FOLDER")
    values = dict(variable(text) for text in given)
    imported = import_launch(form, file, gpus, output, values)
    render.emit(json, summary(imported, form), *lines(imported, form))


def variable(text: str) -> tuple[str, str]:
    """A variable and its value. Raises InputError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"`{text[:40]}` gives no variable a value", where="--set", fix="--set NAME=VALUE")
    return name, value


def summary(imported: ImportedLaunch, form: str) -> dict[str, Any]:
    return {
        "form": form,
        "job": str(imported.job),
        "layout": layout_text(imported.layout),
        "defaults": imported.defaults,
        "unpriced": [*imported.read.unpriced],
        "holes": imported.holes,
        "overruled": imported.overruled,
    }


def lines(imported: ImportedLaunch, form: str) -> Iterator[str]:
    yield f"layout    {layout_text(imported.layout)}"
    for kind, arguments in import_notes(imported):
        if arguments:
            yield f"{kind}: {', '.join(' '.join(filter(None, each)) for each in arguments.items())}"
    yield f"job written to {imported.job}"
    better = f"planner export {imported.job} --to {form} --better -o -"
    yield f"next: planner fits {imported.job}; or predict, or why-not; or {better}"
