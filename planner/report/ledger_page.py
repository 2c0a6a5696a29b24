"""The page of a ledger of published records: predicted against measured, errors by source, skipped records."""

from collections.abc import Iterator

from planner.ledger import AccuracyFigures, AccuracyReport, PredictedRecord
from planner.report.page import Figure, Page
from planner.report.scatter_section import Panel, Point, scatter_data, scatter_section
from planner.report.tags import Content, Markup, details, join, section, table, tag
from planner.units import GIB, percent

SOURCES_NAMED = 3  # beside each reason
RANKING_HEADS = ("source", ">groups", ">Spearman", ">loss of predicted best", ">loss ≤ 5 %")  # medians


def ledger_page(account: AccuracyReport, title: str) -> Page:
    shown_panels = [panel for panel in panels(account) if panel.points]
    overall = account.overall
    skipped = overall.records_read - overall.rows_used
    sections = (
        scatter_section(shown_panels) if shown_panels else None,
        errors(account),
        ranking_section(account),
        skipped_section(account),
    )
    return Page(
        kind="ledger",
        title=title,
        subtitle=f"{overall.records_read:,} published records of {len(account.sources)} sources · "
        f"{overall.rows_used:,} predicted, {skipped:,} skipped",
        figures=(
            Figure(
                "Median error of time, source left out",
                share_text(overall.left_out_median_error),
                f"{overall.time_records:,} records; in sample {share_text(overall.time_median_error)}",
            ),
            Figure(
                "Mean over sources",
                share_text(overall.mean_over_sources),
                f"90th percentile {share_text(overall.left_out_p90_error)}, bias {signed_share(overall.left_out_bias)}",
            ),
            Figure("In the 80 % interval", share_text(overall.coverage80), "of measured steps"),
            Figure(
                "Median error of memory", share_text(overall.memory_median_error), f"{overall.memory_records:,} records"
            ),
        ),
        sections=tuple(each for each in sections if each is not None),
        data={"page": "ledger", **scatter_data(shown_panels, [*account.sources])},
        summary={
            "page": "ledger",
            "ledger": title,
            "rows_used": overall.rows_used,
            "rows_skipped": skipped,
            "sources": len(account.sources),
            "time_median_error": overall.time_median_error,
            "points": sum(len(panel.points) for panel in shown_panels),
        },
    )


def panels(account: AccuracyReport) -> tuple[Panel, Panel]:
    times = [
        point(record, record.seconds, record.prediction.seconds, record.prediction.spread)
        for record in account.records
        if record.seconds
    ]
    sizes = [
        point(record, record.memory_bytes / GIB, record.prediction.memory_bytes / GIB, 0.0)
        for record in account.records
        if record.memory_bytes
    ]
    return Panel("time", "Time of a step", "s", times), Panel("memory", "Peak memory of a rank", "GiB", sizes)


def point(record: PredictedRecord, measured: float, predicted: float, spread: float) -> Point:
    origin = record.case.origin
    return Point(origin.source, origin.record_id or f"{origin.file}:{origin.line}", measured, predicted, spread)


def errors(account: AccuracyReport) -> Markup:
    rows = [error_row(name, figures) for name, figures in {**account.sources, "all": account.overall}.items()]
    heads = (
        "source", ">left out", ">90th %", ">bias", ">in 80 %", ">in sample", ">memory, median", ">used", ">skipped",
    )  # fmt: skip
    lead = (
        "Errors are relative to the measured value; a bias above 0 means predicted too slow. Left out: by coefficients"
        " that have not seen the source."
    )
    return section("errors", "Errors by source", table(heads, rows, "Time of a step, and peak memory"), lead=lead)


def error_row(name: str, f: AccuracyFigures) -> tuple[Content, ...]:
    counts = (f"{f.rows_used:,}", f"{f.records_read - f.rows_used:,}" if f.records_read > f.rows_used else "")
    shown = tag("b", name) if name == "all" else name
    return (shown, *time_errors(f), share_text(f.memory_median_error), *counts)


def time_errors(f: AccuracyFigures) -> tuple[str, ...]:
    """Errors of step times: median, 90th percentile and bias with the source left out; coverage; median in sample."""
    left_out = (share_text(f.left_out_median_error), share_text(f.left_out_p90_error), signed_share(f.left_out_bias))
    return (*left_out, share_text(f.coverage80), share_text(f.time_median_error))


def ranking_section(account: AccuracyReport) -> Markup | None:
    """Whether predictions rank strategies as measurements do."""
    rows = ranking_cells(account)
    lead = "In groups of at least four strategies measured on one job."
    table_of = table(RANKING_HEADS, rows, "Ranking")
    return section("orders", "Ranking of strategies", table_of, lead=lead) if rows else None


def ranking_cells(account: AccuracyReport) -> list[tuple[str, ...]]:
    """How predictions rank strategies, by source and of all, as `RANKING_HEADS` names it."""
    return [
        (
            name,
            str(f.ranked_groups),
            "" if f.spearman_median is None else f"{f.spearman_median:.2f}",
            share_text(f.best_pick_loss),
            share_text(f.best_pick_close),
        )
        for name, f in {**account.sources, "all": account.overall}.items()
        if f.ranked_groups
    ]


def skipped_section(account: AccuracyReport) -> Markup:
    """Every skipped record is counted under its reason."""
    rows = [(reason, f"{count:,}", sources) for reason, count, sources in skip_reasons(account)]
    files = sorted({one.origin.file for one in account.other_files})
    other_files = details(f"{len(files)} files without such records", tag("p", ", ".join(files))) if files else None
    shown = table(("reason", ">records", "in"), rows, "Skipped records") if rows else tag("p", "No record was skipped.")
    return section("skipped", "Skipped records, and why", join(shown, other_files))


def skip_reasons(account: AccuracyReport) -> Iterator[tuple[str, int, str]]:
    """Why records were skipped, most frequent reason first: how many, and in which sources."""
    for reason, count in account.overall.rows_skipped.items():
        by_source = {name: f.rows_skipped.get(reason, 0) for name, f in account.sources.items()}
        by_count = sorted((name for name in by_source if by_source[name]), key=lambda name: (-by_source[name], name))
        listed = ", ".join(f"{name} {by_source[name]}" for name in by_count[:SOURCES_NAMED])
        further = f", {len(by_count) - SOURCES_NAMED} more" if len(by_count) > SOURCES_NAMED else ""
        yield reason, count, listed + further


def share_text(value: float | None) -> str:
    return "" if value is None else percent(value)


def signed_share(value: float | None) -> str:
    return "" if value is None else f"{value * 100:+.1f} %"
