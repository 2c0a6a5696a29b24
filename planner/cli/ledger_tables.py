"""Predictions beside published measurements, as tables."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from planner.cli.tables import table
from planner.ledger.account import Account, Figures
from planner.ledger.row import Row
from planner.published.case import Origin
from planner.units import duration, percent, size

ALL = "all"
REASONS_WIDE = 3  # sources that are named with a reason


def account(found: Account, with_rows: bool, svg: Path | None) -> Iterator[RenderableType]:
    """Time, order and memory by source, and why rows were skipped."""
    if with_rows:
        yield from each_row(found)
    overall = found.overall
    yield Text.assemble(
        (f"{overall.rows_read} rows", "bold"),
        f" of {len(found.sources)} sources: {overall.rows_used} predicted "
        f"({overall.rows_defaulted} with facts filled in from cited defaults), "
        f"{overall.rows_read - overall.rows_used} skipped",
    )
    everything = {**found.sources, ALL: overall}
    for make in (times, orders, memories):
        yield from make(everything)
    yield from reasons(found)
    if found.files:
        names = ", ".join(sorted({one.origin.file for one in found.files}))
        yield Text(f"\nfiles without such rows: {names}", style="dim")
    if svg:
        yield Text(f"\npicture written to {svg}", style="dim")


def times(everything: Mapping[str, Figures]) -> Iterator[RenderableType]:
    columns = (">used", ">filled", ">skipped", ">median", ">90th %", ">bias", ">in 80 %")
    shown = table("source", *columns, title="\ntime of a step: errors, and how many are in the 80 % interval")
    for name, f in everything.items():
        shown.add_row(
            name,
            str(f.rows_used),
            str(f.rows_defaulted or ""),
            str(f.rows_read - f.rows_used or ""),
            share(f.time_median_error),
            share(f.time_p90_error),
            signed(f.bias),
            share(f.coverage80),
            style=style(name),
        )
    yield shown


def orders(everything: Mapping[str, Figures]) -> Iterator[RenderableType]:
    shown = table(
        "source",
        ">groups",
        ">Spearman",
        ">picked best loses",
        ">at most 5 %",
        title="\norder of strategies, in groups of at least four",
    )
    fill = [(name, f) for name, f in everything.items() if f.ranked_groups]
    for name, f in fill:
        shown.add_row(
            name,
            str(f.ranked_groups),
            "" if f.spearman_median is None else f"{f.spearman_median:.2f}",
            share(f.best_pick_loss),
            share(f.best_pick_close),
            style=style(name),
        )
    if fill:
        yield shown


def memories(everything: Mapping[str, Figures]) -> Iterator[RenderableType]:
    shown = table(
        "source", ">rows", ">median", ">out of memory, named", ">named, out of memory", title="\npeak memory of a rank"
    )
    fill = [(n, f) for n, f in everything.items() if f.memory_rows or f.oom_recall[1] or f.oom_precision[1]]
    for name, f in fill:
        shown.add_row(
            name,
            str(f.memory_rows or ""),
            share(f.memory_median_error),
            k_of_n(f.oom_recall),
            k_of_n(f.oom_precision),
            style=style(name),
        )
    if fill:
        yield shown


def reasons(found: Account) -> Iterator[RenderableType]:
    """Why rows were skipped, most frequent first, and in which sources."""
    shown = table("reason", ">rows", "in", title="\nskipped")
    for reason, count in found.overall.rows_skipped.items():
        by_source = {name: f.rows_skipped.get(reason, 0) for name, f in found.sources.items()}
        most = sorted((name for name in by_source if by_source[name]), key=lambda name: (-by_source[name], name))
        named = ", ".join(f"{name} {by_source[name]}" for name in most[:REASONS_WIDE])
        further = f", {len(most) - REASONS_WIDE} more" if len(most) > REASONS_WIDE else ""
        shown.add_row(reason, str(count), named + further)
    if found.skipped:
        yield shown


def each_row(found: Account) -> Iterator[RenderableType]:
    """Predicted rows, then skipped ones, each with where it stands."""
    shown = table("row", ">measured", ">predicted", ">error", ">memory", ">predicted", ">error", "out?")
    shown.columns[0].overflow = "fold"
    for column in shown.columns[1:]:
        column.no_wrap = True
    for row in found.rows:
        shown.add_row(named(row.case.origin), *row_cells(row))
    if found.rows:
        yield shown
    left = table("row", "skipped", "because", title="\nskipped rows")
    for one in found.skipped:
        left.add_row(named(one.origin), one.reason, one.detail)
    if found.skipped:
        yield left
    yield Text()


def row_cells(row: Row) -> list[str]:
    seconds, memory = row.seconds, row.memory_bytes
    return [
        duration(seconds) if seconds else "",
        duration(row.predicted.seconds) if seconds else "",
        signed(row.time_error),
        size(memory) if memory else "",
        size(row.predicted.memory_bytes) if memory else "",
        signed(row.memory_error),
        ran_out(row),
    ]


def ran_out(row: Row) -> str:
    chance = percent(row.predicted.oom_probability)
    return f"yes ({chance})" if row.case.oom else f"no ({chance})" if row.named else ""


def named(origin: Origin) -> str:
    return origin.row or f"{origin.file}:{origin.line}"


def style(name: str) -> str:
    return "bold" if name == ALL else ""


def share(value: float | None) -> str:
    return "" if value is None else percent(value)


def signed(value: float | None) -> str:
    return "" if value is None else f"{value * 100:+.1f} %"


def k_of_n(pair: tuple[int, int]) -> str:
    return f"{pair[0]} of {pair[1]}" if pair[1] else ""
