"""Imports TorchRec's configs as a file of embedding tables, and prints what was read."""

from pathlib import Path

from planner import files
from planner.cli import render
from planner.specs.tables import read_configs
from planner.units import byte_size, plural


def import_tables(file: Path, output: Path | None, json: bool) -> None:
    """Write the tables of a file of `EmbeddingBagConfig`s to `output`, or to stdout."""
    imported = read_configs(file)
    size = sum(table.bytes for table in imported.tables.values())
    lines = [f"{plural(len(imported.tables), 'table')} of {byte_size(size)} with optimizer states; {imported.source}"]
    if output is None and not json:
        render.note(*lines)
        render.print_raw(files.dump(imported))
        return
    if output is not None:
        files.write(output, imported)
        lines.append(f"tables written to {output}: a job has them as tables: {{from: {output.name}}}")
    render.emit(json, {"tables": imported, "file": str(output) if output else None, "bytes": size}, *lines)
