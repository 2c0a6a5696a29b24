"""Folders of traces: each stands for the traces of torch.profiler below it, whatever else a run left there.

A trace is told by its head: the profiler writes `traceEvents` after a few lines about the machine. What has none is
another file, as an execution trace is, and is named in a note rather than refused.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from planner.errors import InputError
from planner.files import read_head
from planner.units import MIB

HEAD = MIB  # bytes of a file, uncompressed, before its events
SUFFIXES = (".json", ".json.gz")


class FoundTraces(NamedTuple):
    """The files that some paths stand for, in the order of their paths."""

    traces: list[Path]
    notes: list[str]  # of what is left out


def find_traces(paths: Iterable[Path]) -> FoundTraces:
    """Files stand for themselves. Raises InputError where a folder has no trace."""
    traces: list[Path] = []
    notes: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            traces.append(path)
            continue
        found = sorted(file for file in path.rglob("*.json*") if file.name.endswith(SUFFIXES) and os.path.isfile(file))
        own = [file for file in found if has_events(file)]
        if not own:
            fix = "name one with the files of torch.profiler, *.json or *.json.gz; one of each rank"
            raise InputError("the folder has no trace", where=str(path), fix=fix)
        others = [str(file.relative_to(path)) for file in found if file not in own]
        notes += [f"{path}: {name} is no trace of torch.profiler, and is left out" for name in others]
        traces += own
    return FoundTraces(traces, notes)


def has_events(path: Path) -> bool:
    """Whether a file's head begins the events of a trace; one that cannot be read does, so that its error is shown."""
    try:
        return b'"traceEvents"' in read_head(path, HEAD)
    except InputError:
        return True
