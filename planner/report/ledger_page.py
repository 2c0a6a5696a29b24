"""The page of a ledger of published records: predicted against measured, errors by source, skipped records."""

from planner.ledger.account import Account, Figures
from planner.ledger.row import Row
from planner.report.page import Figure, Page
from planner.report.scattered import Panel, Point, scatter_section, scattered
from planner.report.tags import Content, Markup, details, join, section, table, tag
from planner.units import GIB, percent

SOURCES_NAMED = 3  # beside each reason


def ledger_page(account: Account, title: str) -> Page:
    found = [panel for panel in panels(account) if panel.points]
    overall = account.overall
    skipped = overall.rows_read - overall.rows_used
    sections = (scatter_section(found) if found else None, errors(account), orders(account), left(account))
    return Page(
        kind="ledger",
        title=title,
        subtitle=f"{overall.rows_read:,} published records of {len(account.sources)} sources · "
        f"{overall.rows_used:,} predicted, {skipped:,} skipped",
        figures=(
            Figure(
                "Median error of time",
                said(overall.time_median_error),
                f"{overall.time_rows:,} records, published against predicted",
            ),
            Figure("90th percentile", said(overall.time_p90_error), f"bias {signed(overall.bias)}"),
            Figure("In the 80 % interval", said(overall.coverage80), "of measured steps"),
            Figure("Median error of memory", said(overall.memory_median_error), f"{overall.memory_rows:,} records"),
        ),
        sections=tuple(each for each in sections if each is not None),
        data={"page": "ledger", **scattered(found, [*account.sources])},
        summary={
            "page": "ledger",
            "ledger": title,
            "rows_used": overall.rows_used,
            "rows_skipped": skipped,
            "sources": len(account.sources),
            "time_median_error": overall.time_median_error,
            "points": sum(len(panel.points) for panel in found),
        },
    )


def panels(account: Account) -> tuple[Panel, Panel]:
    times = [
        point(record, record.seconds, record.predicted.seconds, record.predicted.spread)
        for record in account.rows
        if record.seconds
    ]
    sizes = [
        point(record, record.memory_bytes / GIB, record.predicted.memory_bytes / GIB, 0.0)
        for record in account.rows
        if record.memory_bytes
    ]
    return Panel("time", "Time of a step", "s", times), Panel("memory", "Peak memory of a rank", "GiB", sizes)


def point(record: Row, measured: float, predicted: float, spread: float) -> Point:
    origin = record.case.origin
    return Point(origin.source, origin.row or f"{origin.file}:{origin.line}", measured, predicted, spread)


def errors(account: Account) -> Markup:
    rows = [error_row(name, found) for name, found in {**account.sources, "all": account.overall}.items()]
    heads = ("source", ">median", ">90th %", ">bias", ">in 80 %", ">memory, median", ">used", ">skipped")
    lead = "Errors are relative to the measured value; a bias above 0 means predicted too slow."
    return section("errors", "Errors by source", table(heads, rows, "Time of a step, and peak memory"), lead=lead)


def error_row(name: str, f: Figures) -> tuple[Content, ...]:
    counts = (f"{f.rows_used:,}", f"{f.rows_read - f.rows_used:,}" if f.rows_read > f.rows_used else "")
    shares = (
        said(f.time_median_error),
        said(f.time_p90_error),
        signed(f.bias),
        said(f.coverage80),
        said(f.memory_median_error),
    )
    return (tag("b", name) if name == "all" else name, *shares, *counts)


def orders(account: Account) -> Markup | None:
    """Whether predictions rank strategies as measurements do."""
    rows = [
        (
            name,
            str(f.ranked_groups),
            "" if f.spearman_median is None else f"{f.spearman_median:.2f}",
            said(f.best_pick_loss),
        )
        for name, f in {**account.sources, "all": account.overall}.items()
        if f.ranked_groups
    ]
    heads = ("source", ">groups", ">Spearman, median", ">loss of predicted best, median")
    lead = "In groups of at least four strategies measured on one job."
    return section("orders", "Ranking of strategies", table(heads, rows, "Ranking"), lead=lead) if rows else None


def left(account: Account) -> Markup:
    """Every skipped record is counted under its reason."""
    rows = []
    for reason, count in account.overall.rows_skipped.items():
        by_source = {name: f.rows_skipped.get(reason, 0) for name, f in account.sources.items()}
        by_count = sorted((name for name in by_source if by_source[name]), key=lambda name: (-by_source[name], name))
        listed = ", ".join(f"{name} {by_source[name]}" for name in by_count[:SOURCES_NAMED])
        rows.append(
            (
                reason,
                f"{count:,}",
                listed + (f", {len(by_count) - SOURCES_NAMED} more" if len(by_count) > SOURCES_NAMED else ""),
            )
        )
    files = sorted({one.origin.file for one in account.files})
    other_files = details(f"{len(files)} files without such records", tag("p", ", ".join(files))) if files else None
    shown = table(("reason", ">records", "in"), rows, "Skipped records") if rows else tag("p", "No record was skipped.")
    return section("skipped", "Skipped records, and why", join(shown, other_files))


def said(value: float | None) -> str:
    return "" if value is None else percent(value)


def signed(value: float | None) -> str:
    return "" if value is None else f"{value * 100:+.1f} %"
