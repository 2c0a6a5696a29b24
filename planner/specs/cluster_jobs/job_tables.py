"""Tables of jobs and of throughputs, as CSV: planner's columns, and those of Gavel's and Philly's traces."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.specs.cluster_jobs.job_records import JobFile, JobRecord, Throughputs, number
from planner.units import first_few

ALIASES = {  # column of another trace → planner's
    "job_type": "model",
    "total_steps": "steps",
    "scale_factor": "gpus",
    "num_gpus": "gpus",
    "arrival_s": "submit_s",
    "vc": "user",
}
COLUMNS = ("submit_s", "gpus", "duration_s", "steps", "model", "id", "user", "kind")
ALONE = "null"  # of Gavel's column `other`: no job beside


def read_table(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each record of a CSV with a header, by planner's names of columns, and its place. Raises InputError."""
    return files.read_records(path, ", ".join(COLUMNS[:3]), ALIASES)


def job_table(path: Path) -> JobFile:
    """The jobs of a table, and columns that are not read. Raises InputError."""
    records = [*table_jobs(path)]
    header = next((cells for _, cells in read_table(path)), {})
    unread = [column for column in header if column not in COLUMNS]
    notes = [f"columns that are not read: {', '.join(unread)}"] if unread else []
    both = [record.id for record in records if record.duration_s is not None and record.steps is not None]
    return JobFile(records, notes + [f"duration_s counts, and steps do not, of {first_few(both)}"] * bool(both))


def table_jobs(path: Path) -> Iterator[JobRecord]:
    """The jobs of a table with GPUs, which are in order of submission. Raises InputError."""
    before = 0.0
    for count, (where, cells) in enumerate(read_table(path)):
        for column in ("submit_s", "gpus"):
            if column not in cells:
                fix = f"columns submit_s, gpus, and duration_s or steps and model; it has {', '.join(cells)}"
                raise InputError(f"there is no column {column}", where=f"{path}:1", fix=fix)
        submit = number(cells["submit_s"], "submit_s", f"{where} (submit_s)")
        if submit < before:
            message = f"submit_s goes back, from {before:.9g} to {submit:.9g}"
            raise InputError(message, where=f"{where} (submit_s)", fix="sort the table by submit_s")
        before = submit
        gpus = number(cells["gpus"], "gpus", f"{where} (gpus)")
        if gpus != int(gpus):
            raise InputError(f"gpus is `{cells['gpus']}`", where=f"{where} (gpus)", fix="a whole number")
        if not gpus:
            continue
        amounts = {
            name: number(cells[name], name, f"{where} ({name})", least) if cells.get(name) else None
            for name, least in (("duration_s", 0.0), ("steps", 1.0))
        }
        yield JobRecord(
            id=cells.get("id") or str(count),
            where=where,
            submit_s=submit,
            gpus=int(gpus),
            duration_s=amounts["duration_s"],
            steps=amounts["steps"],
            model=cells.get("model", ""),
            kind=cells.get("kind", ""),
            user=cells.get("user", ""),
        )


def read_throughputs(path: Path) -> Throughputs:
    """Steps a second of columns `model, kind, gpus, steps_per_s`, of `model` beside the model `other` on one GPU where
    that stands there; or of Gavel's `gpu, job, other, thr_job, thr_other`. What is 0 there is not known. Raises
    InputError.
    """
    alone: dict[str, dict[str, dict[int, float]]] = {}
    beside: dict[str, dict[str, dict[str, float]]] = {}
    for where, cells in read_table(path):
        try:
            rates = [*table_rates(cells)]
        except (KeyError, ValueError, TypeError, SyntaxError) as error:
            fix = "columns model, kind, gpus, steps_per_s; or Gavel's gpu, job, other, thr_job"
            raise InputError("this is no throughput", where=where, fix=fix) from error
        for rate in rates:
            steps = number(rate.steps_per_s, "steps a second", where)
            if steps > 0 and rate.other == ALONE:
                alone.setdefault(rate.model, {}).setdefault(rate.kind, {})[rate.gpus] = steps
            elif steps > 0 and rate.gpus == 1:
                beside.setdefault(rate.model, {}).setdefault(rate.kind, {})[rate.other] = steps
    return Throughputs(alone, beside)


class TableRate(NamedTuple):
    """Steps a second of a model, as they stand in a table."""

    model: str
    kind: str
    gpus: int
    other: str
    steps_per_s: str


def table_rates(cells: Mapping[str, str]) -> Iterator[TableRate]:
    """What a line tells: of one model, or of two side by side."""
    other = cells.get("other") or ALONE
    if "thr_job" not in cells:
        yield TableRate(cells["model"], cells["kind"], int(cells["gpus"]), other, cells["steps_per_s"])
        return
    model, gpus = ast.literal_eval(cells["job"])
    name, _ = (ALONE, gpus) if other == ALONE else ast.literal_eval(other)
    yield TableRate(str(model), cells["gpu"], int(gpus), str(name), cells["thr_job"])
    if other != ALONE:
        yield TableRate(str(name), cells["gpu"], int(gpus), str(model), cells["thr_other"])
