"""Reader of a folder of published measurements: each record as a case, or skipped with the reason."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.published import machines, models
from planner.published.case import Case, Origin, Skipped
from planner.published.defaults import defaults, filled
from planner.published.machines import software
from planner.published.measured import Counting, adapters, measured
from planner.published.rows import EXTRA, Row, Unusable, is_published, read_rows
from planner.published.setups import Machine, settings, setup
from planner.specs import library
from planner.specs.profile import Device, Profile

MEASURED = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s_total", "samples_per_s", "tflops_per_gpu", "peak_mem")
ROOM = 1.1  # over a device's memory: figures printed as GB may be GiB
BOARD = 0.1  # by which a nominal memory size may differ from what the device reports
VARIED = re.compile(r"variable|var-?len|packed lengths|mixed lengths")


def read_published(directory: Path) -> tuple[list[Case], list[Skipped]]:
    """Every record of every CSV file exactly once, by file name and line; a file of another schema is skipped whole.

    Raises InputError where this is no directory, holds no file of the schema, or holds one that cannot be read.
    """
    if not directory.is_dir():
        raise InputError("not a directory", where=str(directory), fix="give a folder of CSV files")
    cases: list[Case] = []
    skipped: list[Skipped] = []
    paths = sorted(path for path in directory.glob("*.csv") if path.is_file())
    published = [path for path in paths if is_published(path)]
    if not published:
        what = "no CSV file here has the columns of the published schema (row_id, source_id, …)"
        raise InputError(what, where=str(directory), fix="give a folder of such files")
    for path in paths:
        if path not in published:
            skipped.append(Skipped(Origin(path.stem, "", "", path.name, 1), "file not of the schema", path.name))
    for each in once(published):
        if isinstance(each, Case):
            cases.append(each)
        else:
            skipped.append(each)
    return cases, skipped


def once(paths: list[Path]) -> Iterator[Case | Skipped]:
    """Every record as a case or skipped; a measurement that is published twice counts once."""
    seen: dict[tuple[object, ...], str] = {}
    for path in paths:
        for record in read_rows(path):
            try:
                case = read_case(record)
            except Unusable as why:
                yield Skipped(record.origin, why.reason, why.detail)
                continue
            key = printed(record, case)
            if key in seen:
                yield Skipped(case.origin, "printed twice", f"as {seen[key]}")
                continue
            seen[key] = case.origin.row
            yield case


def printed(record: Row, case: Case) -> tuple[object, ...]:
    """Equal for two prints of one measurement: the setup, and every measured digit."""
    stated = (record.text("framework"), record.text("date_or_version"), record.text("task"), record.text("status"))
    digits = tuple(record.text(name) for name in MEASURED)
    source = case.origin.source
    model = files.json_text(case.module)
    return source, stated, digits, model, case.setup, case.device, case.fabric


def read_case(record: Row) -> Case:
    """A record as a case. Raises UnusableRecord, and InputError for a shipped file that cannot be read."""
    if record.text(EXTRA):
        raise Unusable("unreadable row", f"more cells than columns: {record.text(EXTRA)[:60]}")
    if VARIED.search(record.text("task").lower()):
        raise Unusable("sequences of different lengths", record.text("task"))
    source_facts, origin = defaults(record), record.origin
    completed = filled(record, source_facts)
    record = completed.row
    model = models.found(record)
    device = machines.device(record)
    facts = shipped_device(device)
    name = completed.software or software(record)
    fabric = machines.fabric(record, device)
    counted = record
    if model.tokens:  # printed FLOPs count both modules, ours one: drop them
        counted = record.filled({"seq_len": str(model.tokens), "tflops_per_gpu": "", "mfu_pct": "", "hfu_pct": ""})
    columns, assumed = setup(counted, model.module, Machine(device, name, fabric.per_node))
    if model.encoder:
        columns = replace(columns, reads=model.encoder.seq / columns.seq)
    counting = Counting(source_facts.attention, source_facts.recomputed)
    figures = measured(counted, model.module, columns, counting, peak(facts, columns.dtype))
    board = board_bytes(record, facts)
    if (figures.memory_bytes or 0.0) > ROOM * (board or facts.memory_gib * 2**30):
        raise Unusable(
            "impossible figures", f"peak_mem: {record.text('peak_mem')} {record.text('mem_unit')} on {device}"
        )
    return Case(
        origin=origin,
        module=model.module,
        setup=columns,
        device=device,
        software=name,
        fabric=fabric,
        adapters=adapters(record),
        settings=settings(record),
        seconds=figures.seconds,
        memory_bytes=figures.memory_bytes,
        memory_rank=source_facts.memory_rank or figures.memory_rank,
        oom=figures.oom,
        encoder=model.encoder,
        device_bytes=board,
        defaulted=tuple(sorted(completed.names)),
        assumed=tuple(sorted({*assumed, *model.assumed} - {*completed.names})),
    )


@lru_cache(maxsize=64)
def shipped_device(name: str) -> Device:
    """Facts of a shipped device. Raises UnusableRecord."""
    if name not in library.names(Profile):
        raise Unusable("no profile of the device", name)
    return files.read(library.find(name, Profile), Profile).device


def board_bytes(record: Row, facts: Device) -> float | None:
    """The stated device memory where it differs from the profile's, else None. Raises UnusableRecord."""
    stated = machines.memory_gb(record)
    if stated is None or abs(stated / (facts.memory_gib * 2**30 / 1e9) - 1) < BOARD:
        return None
    return stated * 1e9


def peak(facts: Device, precision: str) -> float | None:
    """Peak FLOP/s of a device in a precision; None where its profile states none."""
    tflops = facts.tflops.get(precision) or (facts.tflops.get("bf16") if precision == "fp16" else None)
    return tflops * 1e12 if tflops else None
