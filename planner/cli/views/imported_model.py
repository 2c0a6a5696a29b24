"""Imports a Hugging Face config.json as a model file, and prints what was read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner import files, hf
from planner.cli import render
from planner.specs.parameters import counts_text, parameter_counts
from planner.workflows.imported_models import imported, module_shape, parameter_totals, shape_text


def import_model(file: Path, output: Path | None, build: bool, mtp: bool, json: bool) -> None:
    """Write the model that a config.json describes to `output`, or to stdout."""
    found = imported(file, build, mtp)
    if output is not None:
        files.write(output, found.model)
        render.emit(json, summary(found, output), *import_lines(found, output))
    elif json:
        render.emit(True, summary(found, None), *import_lines(found, None))
    else:
        render.note(*import_lines(found, None))
        render.print_raw(files.dump(found.model))


def summary(imported: hf.ImportedModel, output: Path | None) -> dict[str, Any]:
    return {
        "model": imported.model,
        "file": str(output) if output else None,
        "parameters": parameter_totals(imported.model),
        "modules": {name: module_shape(module) for name, module in imported.model.modules.items()},
        "source_parameters": imported.source_parameters,
        "notes": [note._asdict() for note in imported.notes],
    }


def import_lines(imported: hf.ImportedModel, output: Path | None) -> Iterator[str]:
    """A line for each module with its parameters, and for each difference from the source."""
    for name, module in imported.model.modules.items():
        yield f"{name}: {parameter_counts(module).total:,} parameters: {counts_text(module)}"
        yield f"{name}: {shape_text(module)}"
    for note in imported.notes:
        by = f" ({abs(note.parameters):,} parameters)" if note.parameters else ""
        yield f"{note.kind}: {note.what}{by}"
    if any(note.parameters for note in imported.notes):
        yield f"the source has {imported.source_parameters:,} parameters"
    if output:
        yield f"model written to {output}"
