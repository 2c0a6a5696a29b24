"""Predictions compared with published measurements, as tables."""

from collections.abc import Iterator, Mapping
from statistics import median

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.ledger import AccuracyFigures, AccuracyReport, PredictedRecord
from planner.published import RecordOrigin
from planner.report import RANKING_HEADS, ranking_cells, share_text, signed_share, skip_reasons, time_errors
from planner.units import byte_size, duration, percent, plural

ALL = "all"


def ledger_tables(ledger: AccuracyReport, with_rows: bool) -> Iterator[RenderableType]:
    """Errors of time, order and memory by source, and why records were skipped."""
    if with_rows:
        yield from record_tables(ledger)
    overall = ledger.overall
    yield Text.assemble(
        (plural(overall.records_read, "record"), "bold"),
        f" of {plural(len(ledger.sources), 'source')}: {overall.rows_used} predicted "
        f"({overall.rows_defaulted} with missing facts filled in from cited defaults), "
        f"{overall.records_read - overall.rows_used} skipped",
    )
    by_source = {**ledger.sources, ALL: overall}
    yield from time_table(by_source)
    if ledger.after_one_run:
        after = share_text(median(ledger.after_one_run.values()))
        sources = plural(len(ledger.after_one_run), "source")
        yield Text(f"after one run of a source, of its others, median over {sources}: {after}")
    yield from ranking_table(ledger)
    yield from memory_table(by_source)
    yield from skipped_table(ledger)
    yield from doubtful_records(ledger)
    if ledger.other_files:
        names = ", ".join(sorted({one.origin.file for one in ledger.other_files}))
        yield Text(f"\nfiles without such records: {names}", style="dim")


def time_table(by_source: Mapping[str, AccuracyFigures]) -> Iterator[RenderableType]:
    columns = (">used", ">skipped", ">left out", ">90th %", ">bias", ">in 80 %", ">in sample")
    rows = table("source", *columns, title="\nstep time: errors with the source left out of the fit")
    for name, f in by_source.items():
        rows.add_row(
            name,
            str(f.rows_used),
            str(f.records_read - f.rows_used or ""),
            *time_errors(f),
            style=style(name),
        )
    yield rows
    mean = by_source[ALL].mean_over_sources
    if mean is not None:
        yield Text(f"mean over sources of the left-out medians: {share_text(mean)}", style="bold")


def ranking_table(ledger: AccuracyReport) -> Iterator[RenderableType]:
    rows = table(*RANKING_HEADS, title="\nranking of strategies, in groups of at least four")
    ranked = ranking_cells(ledger)
    for cells in ranked:
        rows.add_row(*cells, style=style(cells[0]))
    if ranked:
        yield rows


def memory_table(by_source: Mapping[str, AccuracyFigures]) -> Iterator[RenderableType]:
    rows = table(
        "source", ">records", ">median", ">out of memory: recall", ">precision", title="\npeak memory of a rank"
    )
    with_memory = [(n, f) for n, f in by_source.items() if f.memory_records or f.oom_recall[1] or f.oom_precision[1]]
    for name, f in with_memory:
        rows.add_row(
            name,
            str(f.memory_records or ""),
            share_text(f.memory_median_error),
            k_of_n(f.oom_recall),
            k_of_n(f.oom_precision),
            style=style(name),
        )
    if with_memory:
        yield rows


def skipped_table(ledger: AccuracyReport) -> Iterator[RenderableType]:
    """Why records were skipped, most frequent reason first, and in which sources."""
    rows = table("reason", ">records", "in", title="\nskipped")
    for reason, count, sources in skip_reasons(ledger):
        rows.add_row(reason, str(count), sources)
    if ledger.skipped:
        yield rows


def doubtful_records(ledger: AccuracyReport) -> Iterator[RenderableType]:
    """Which printed figures contradict the measured seconds that were compared."""
    doubted = [(record.case.origin, doubt) for record in ledger.records for doubt in record.case.doubts]
    if doubted:
        yield Text(f"\nprinted figures against the measured seconds, which are compared: {len(doubted)}", style="dim")
    for origin, doubt in doubted:
        yield Text(f"  {named(origin)}: {doubt}", style="dim")


def record_tables(ledger: AccuracyReport) -> Iterator[RenderableType]:
    """Predicted records, then skipped ones, each with its place in the files."""
    rows = table("record", ">measured", ">predicted", ">error", ">memory", ">predicted", ">error", "out?")
    rows.columns[0].overflow = "fold"
    for column in rows.columns[1:]:
        column.no_wrap = True
    for record in ledger.records:
        rows.add_row(named(record.case.origin), *record_cells(record))
    if ledger.records:
        yield rows
    skipped = table("record", "skipped", "because", title="\nskipped records")
    for one in ledger.skipped:
        skipped.add_row(named(one.origin), one.reason, one.detail)
    if ledger.skipped:
        yield skipped
    yield Text()


def record_cells(record: PredictedRecord) -> list[str]:
    seconds, memory = record.seconds, record.memory_bytes
    return [
        duration(seconds) if seconds else "",
        duration(record.prediction.seconds) if seconds else "",
        signed_share(record.time_error),
        byte_size(memory) if memory else "",
        byte_size(record.prediction.memory_bytes) if memory else "",
        signed_share(record.memory_error),
        out_of_memory_text(record),
    ]


def out_of_memory_text(record: PredictedRecord) -> str:
    chance = percent(record.prediction.oom_probability)
    return f"yes ({chance})" if record.case.oom else f"no ({chance})" if record.predicted_oom else ""


def named(origin: RecordOrigin) -> str:
    return origin.record_id or f"{origin.file}:{origin.line}"


def style(name: str) -> str:
    return "bold" if name == ALL else ""


def k_of_n(pair: tuple[int, int]) -> str:
    return f"{pair[0]} of {pair[1]}" if pair[1] else ""
