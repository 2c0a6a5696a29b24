"""The page of a ledger of published rows: predicted against measured, errors by source, what was skipped and why."""

from planner.ledger.account import Account, Figures
from planner.ledger.row import Row
from planner.report.page import Figure, Page
from planner.report.scattered import Panel, Point, scatter_section, scattered
from planner.report.tags import Content, Markup, details, join, section, table, tag
from planner.units import GIB, percent

REASONS_WIDE = 3  # sources that are named with a reason


def ledger_page(account: Account, title: str) -> Page:
    found = [panel for panel in panels(account) if panel.points]
    overall = account.overall
    skipped = overall.rows_read - overall.rows_used
    sections = (scatter_section(found) if found else None, errors(account), orders(account), left(account))
    return Page(
        kind="ledger",
        title=title,
        subtitle=f"{overall.rows_read:,} published rows of {len(account.sources)} sources · "
        f"{overall.rows_used:,} predicted, {skipped:,} skipped",
        figures=(
            Figure(
                "Median error of time",
                said(overall.time_median_error),
                f"{overall.time_rows:,} rows, published against predicted",
            ),
            Figure("90th percentile", said(overall.time_p90_error), f"bias {signed(overall.bias)}"),
            Figure("In the 80 % interval", said(overall.coverage80), "of measured steps"),
            Figure("Median error of memory", said(overall.memory_median_error), f"{overall.memory_rows:,} rows"),
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
        point(row, row.seconds, row.predicted.seconds, row.predicted.spread) for row in account.rows if row.seconds
    ]
    sizes = [
        point(row, row.memory_bytes / GIB, row.predicted.memory_bytes / GIB, 0.0)
        for row in account.rows
        if row.memory_bytes
    ]
    return Panel("time", "Time of a step", "s", times), Panel("memory", "Peak memory of a rank", "GiB", sizes)


def point(row: Row, measured: float, predicted: float, spread: float) -> Point:
    origin = row.case.origin
    return Point(origin.source, origin.row or f"{origin.file}:{origin.line}", measured, predicted, spread)


def errors(account: Account) -> Markup:
    rows = [error_row(name, found) for name, found in {**account.sources, "all": account.overall}.items()]
    heads = ("source", ">median", ">90th %", ">bias", ">in 80 %", ">memory, median", ">used", ">skipped")
    lead = "Errors are shares of what was measured; a bias above 0 is predicted too slow."
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
    """Whether predictions put strategies in the order in which they were measured."""
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
    heads = ("source", ">groups", ">Spearman, median", ">picked best loses, median")
    lead = "In groups of at least four strategies tried on one job."
    return section("orders", "Order of strategies", table(heads, rows, "Order"), lead=lead) if rows else None


def left(account: Account) -> Markup:
    """No row is left out unsaid."""
    rows = []
    for reason, count in account.overall.rows_skipped.items():
        by_source = {name: f.rows_skipped.get(reason, 0) for name, f in account.sources.items()}
        most = sorted((name for name in by_source if by_source[name]), key=lambda name: (-by_source[name], name))
        named = ", ".join(f"{name} {by_source[name]}" for name in most[:REASONS_WIDE])
        rows.append(
            (reason, f"{count:,}", named + (f", {len(most) - REASONS_WIDE} more" if len(most) > REASONS_WIDE else ""))
        )
    files = sorted({one.origin.file for one in account.files})
    others = details(f"{len(files)} files without such rows", tag("p", ", ".join(files))) if files else None
    shown = table(("reason", ">rows", "in"), rows, "Skipped rows") if rows else tag("p", "No row was skipped.")
    return section("skipped", "What was skipped, and why", join(shown, others))


def said(value: float | None) -> str:
    return "" if value is None else percent(value)


def signed(value: float | None) -> str:
    return "" if value is None else f"{value * 100:+.1f} %"
