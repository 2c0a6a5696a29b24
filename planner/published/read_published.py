"""Reader of a folder of published measurements: each record as a case, or skipped with the reason."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from planner.errors import InputError
from planner.published import platforms, trained_model
from planner.published.exchange_settings import gathers_ahead, overlaps_replicas, prefetches
from planner.published.fed_model import of_own_ranks
from planner.published.implied_cells import with_implied_cells
from planner.published.measured_figures import FlopsCounting, measured_figures, ran_out_of_memory, trains_adapters_only
from planner.published.platforms import framework_name
from planner.published.possible_setups import least_share_that_fits, with_inferred_recompute, with_other_setups
from planner.published.published_case import PublishedCase, RecordOrigin, SkippedRecord
from planner.published.rank_degrees import states_layout, usual_layouts
from planner.published.record_files import EXTRA_CELLS, PublishedRecord, UnusableRecord, is_published_file, read_records
from planner.published.record_setup import record_setup, settings_text
from planner.published.shipped_profiles import device_profile
from planner.published.software_vintage import record_fp8_recipe, record_kernel, software_month
from planner.published.source_defaults import FilledRecord, SourceDefaults, defaults_of_source, fill_defaults
from planner.published.unequal_lengths import UnequalLengths, require_undivided, unequal_lengths
from planner.specs.base import with_fields
from planner.specs.framework.dated_kernels import launches_at_once
from planner.specs.hardware.profile import Device
from planner.specs.layers.trained import Lora
from planner.units import GIB

# No record says a rank: that of NVIDIA's performance recipes of NeMo and Megatron-Bridge, on linear_qkv alone.
ADAPTERS = Lora(rank=16, parts=("qkv",))
MEASURED = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s_total", "samples_per_s", "tflops_per_gpu", "peak_mem")
MEMORY_TOLERANCE = 1.1  # over a device's memory: figures printed as GB may be GiB
NOMINAL_TOLERANCE = 0.1  # by which a nominal memory size may differ from what the device reports
# Whose TFLOP/s count recomputation where a source does not say (arXiv 2104.04473, eq. 3; BigScience).
BEFORE_MODEL_FLOPS = "megatron-2021"
NO_FLOPS = dict.fromkeys(("tflops_per_gpu", "mfu_pct", "hfu_pct"), "")  # of several modules: ours are of one


def read_published(directory: Path) -> tuple[list[PublishedCase], list[SkippedRecord]]:
    """Every record of every CSV file exactly once, by file name and line; a file of another schema is skipped whole.

    Raises InputError where this is no directory, holds no file of the schema, or holds one that cannot be read.
    """
    if not os.path.isdir(directory):
        raise InputError("not a directory", where=str(directory), fix="give a folder of CSV files")
    cases: list[PublishedCase] = []
    skipped: list[SkippedRecord] = []
    paths = sorted(path for path in directory.glob("*.csv") if os.path.isfile(path))
    published = [path for path in paths if is_published_file(path)]
    if not published:
        what = "no CSV file here has the columns of the published schema (row_id, source_id, …)"
        raise InputError(what, where=str(directory), fix="give a folder of such files")
    for path in paths:
        if path not in published:
            skipped.append(
                SkippedRecord(RecordOrigin(path.stem, "", "", path.name, 1), "file not of the schema", path.name)
            )
    for each in unique_cases(published):
        if isinstance(each, PublishedCase):
            cases.append(each)
        else:
            skipped.append(each)
    return cases, skipped


def unique_cases(paths: list[Path]) -> Iterator[PublishedCase | SkippedRecord]:
    """Every record as a case or skipped; a measurement that is published twice counts once."""
    seen: dict[tuple[object, ...], str] = {}
    for path in paths:
        for record in read_records(path):
            try:
                case = read_case(record)
            except UnusableRecord as why:
                yield SkippedRecord(record.origin, why.reason, why.detail)
                continue
            key = measurement_key(record, case)
            if key in seen:
                yield SkippedRecord(case.origin, "printed twice", f"as {seen[key]}")
                continue
            seen[key] = case.origin.record_id
            yield case


def measurement_key(record: PublishedRecord, case: PublishedCase) -> tuple[object, ...]:
    """Equal for two prints of one measurement: the setup, and every measured digit."""
    stated = (record.text("framework"), record.text("date_or_version"), record.text("task"), record.text("status"))
    digits = tuple(record.text(name) for name in MEASURED)
    source = case.origin.source
    return source, stated, digits, case.module, case.setup, case.device, case.network


def read_case(record: PublishedRecord) -> PublishedCase:
    """A record as a case: of those that its layout may be, where it states none, the first that fits its devices.

    Raises UnusableRecord, and InputError for a shipped file that cannot be read.
    """
    if record.text(EXTRA_CELLS):
        raise UnusableRecord("unreadable row", f"more cells than columns: {record.text(EXTRA_CELLS)[:60]}")
    source_facts = defaults_of_source(record)
    completed = fill_defaults(record, source_facts)
    software = completed.software or framework_name(completed.record)
    device = platforms.device_name(completed.record)
    lengths = unequal_lengths(completed.record)
    implied, assumed = with_implied_cells(lengths.in_record(completed.record) if lengths else completed.record)
    per_node = platforms.stated_network(implied, device).ranks_per_node
    if lengths and not states_layout(implied):
        require_undivided(lengths)
    case, refusal = None, UnusableRecord("layout not stated")
    for each, chosen in usual_layouts(implied, software, per_node):
        known = replace(completed, record=each, software=software)
        try:
            case = case_of_record(known, source_facts, device, (*assumed, *chosen), lengths)
        except UnusableRecord as why:
            refusal = why
            continue
        fullest = replace(case, setup=lengths.longest_alone(case.setup)) if lengths else case
        if not chosen or not least_share_that_fits(fullest):
            break
    if case is None:
        raise refusal
    return with_other_setups(case)


def case_of_record(
    completed: FilledRecord,
    source_facts: SourceDefaults,
    device: str,
    already: tuple[str, ...],
    lengths: UnequalLengths | None = None,
) -> PublishedCase:
    """A record whose blank cells are filled as a case; `already`: columns that were assumed. Raises UnusableRecord."""
    record, name = completed.record, completed.software
    model = trained_model.model_of_record(record)
    facts = device_profile(device).device
    fabric = platforms.stated_network(record, device)
    counted = record
    if model.decoder_tokens:
        counted = record.with_cells({"seq_len": str(model.decoder_tokens), **NO_FLOPS})
    elif model.encoders:
        counted = of_own_ranks(record.with_cells(NO_FLOPS), model.encoders)
    columns, assumed = record_setup(counted, model.module, device, name, fabric.ranks_per_node)
    if model.outputs_read:
        read = model.outputs_read / columns.seq
        columns = replace(columns, cross_reads=read, cross_pairs=read)
    columns, *others = lengths.columns(columns) if lengths else (columns,)
    case = PublishedCase(
        origin=record.origin,
        module=with_fields(model.module, trained=ADAPTERS) if trains_adapters_only(record) else model.module,
        setup=columns,
        device=device,
        software=name,
        network=fabric,
        settings_text=settings_text(record),
        attention_kernel=record_kernel(record, name),
        month=software_month(record),
        fp8_recipe=record_fp8_recipe(record),
        experts_at_once=launches_at_once(name, software_month(record)),
        overlaps_replicas=overlaps_replicas(record, settings_text(record), name),
        gathers_ahead=gathers_ahead(record, settings_text(record), name),
        prefetches=prefetches(settings_text(record)),
        seconds=None,
        memory_bytes=None,
        memory_rank="worst",
        oom=ran_out_of_memory(record),
        encoders=model.encoders,
        other_setups=tuple(others),
        device_bytes=stated_device_bytes(record, facts),
        defaulted=tuple(sorted(completed.filled_columns)),
        assumed=tuple(sorted({*already, *assumed, *model.assumed} - {*completed.filled_columns})),
    )
    stated = facts.tflops.get(columns.dtype) or (facts.tflops.get("bf16") if columns.dtype == "fp16" else None)
    return with_figures(with_inferred_recompute(case), counted, source_facts, stated * 1e12 if stated else None)


def with_figures(
    case: PublishedCase, record: PublishedRecord, source_facts: SourceDefaults, peak: float | None
) -> PublishedCase:
    """The case with what its record measured; `peak`: FLOP/s of its device in its precision, None if not stated. Raises
    UnusableRecord.
    """
    hardware_flops = source_facts.recomputed or (source_facts.sources == () and case.software == BEFORE_MODEL_FLOPS)
    counting = FlopsCounting(source_facts.attention, hardware_flops)
    figures = measured_figures(record, case.module, case.setup, counting, peak)
    room = case.device_bytes or device_profile(case.device).device.memory_gib * GIB
    if (figures.memory_bytes or 0.0) > MEMORY_TOLERANCE * room:
        detail = f"peak_mem: {record.text('peak_mem')} {record.text('mem_unit')} on {case.device}"
        raise UnusableRecord("impossible figures", detail)
    return replace(
        case,
        seconds=figures.seconds,
        memory_bytes=figures.memory_bytes,
        memory_rank=source_facts.memory_rank or figures.memory_rank,
        memory_figure=source_facts.memory_figure,
        doubts=figures.doubts,
    )


def stated_device_bytes(record: PublishedRecord, facts: Device) -> float | None:
    """The stated device memory where it differs from the profile's, else None. Raises UnusableRecord."""
    stated = platforms.stated_memory_gb(record)
    if stated is None or abs(stated / (facts.memory_gib * GIB / 1e9) - 1) < NOMINAL_TOLERANCE:
        return None
    return stated * 1e9
