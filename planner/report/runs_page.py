"""The page of the user's own runs: measured against predicted, and how they drift."""

from collections.abc import Sequence
from statistics import median

from planner.ledger import RunDrift, RunEntry, UnreadLine
from planner.report.page import Figure, Page
from planner.report.scatter_section import Panel, Point, scatter_data, scatter_section
from planner.report.tags import Markup, details, section, table
from planner.units import GIB, byte_size, duration, percent, plural

LAST_RUN_HEADS = (">runs", ">predicted", ">measured", ">ratio", ">before", ">peak")
RUN_HEADS = ("when", "digest", ">steps", ">predicted", ">measured", ">ratio")


def runs_page(drifts: Sequence[RunDrift], unread: Sequence[UnreadLine], title: str) -> Page:
    runs = [(f"{one.plan} on {one.machine}", run) for one in drifts for run in one.runs]
    shown_panels = [panel for panel in panels(runs) if panel.points]
    errors = [abs(run.ratio - 1) for _, run in runs]
    inside = sum(abs(run.ratio - 1) <= run.spread for _, run in runs)
    figures = (
        Figure("Runs", f"{len(runs):,}", f"{plural(len(drifts), 'plan')} and machines, measured here"),
        Figure("Median error of time", percent(median(errors)) if errors else "", "measured against predicted"),
        Figure("In the 80 % interval", f"{inside} of {len(runs)}", "runs"),
        Figure("Drifted", str(sum(one.drifted for one in drifts)), "further from the earlier runs than the interval"),
    )
    sections = [scatter_section(shown_panels)] if shown_panels else []
    return Page(
        kind="ledger",
        title=title,
        subtitle=f"own runs: {plural(len(runs), 'run')}, {plural(len(unread), 'line')} not read",
        figures=figures,
        sections=(*sections, last_runs_section(drifts), unread_section(unread)),
        data={"page": "ledger", **scatter_data(shown_panels, [*dict.fromkeys(source for source, _ in runs)])},
        summary={"page": "runs", "ledger": title, "runs": len(runs), "plans": len(drifts), "unread": len(unread)},
    )


def panels(runs: Sequence[tuple[str, RunEntry]]) -> tuple[Panel, Panel]:
    times = [Point(s, run.when, run.measured_seconds, run.predicted_seconds, run.spread) for s, run in runs]
    sizes = [
        Point(s, run.when, run.measured_peak_bytes / GIB, run.predicted_peak_bytes / GIB, 0.0)
        for s, run in runs
        if run.measured_peak_bytes and run.predicted_peak_bytes
    ]
    return Panel("time", "Time of a step", "s", times), Panel("memory", "Peak memory of a rank", "GiB", sizes)


def last_runs_section(drifts: Sequence[RunDrift]) -> Markup:
    rows = [(one.plan, one.machine, *last_run_cells(one), one.verdict) for one in drifts]
    heads = ("plan", "machine", *LAST_RUN_HEADS, "")
    each = [details(f"{one.plan} on {one.machine}", runs_table(one)) for one in drifts]
    lead = "Ratio: measured / predicted; before: its median over the earlier runs."
    return section("runs", "Last runs", table(heads, rows, "The last run of every plan and machine"), *each, lead=lead)


def last_run_cells(one: RunDrift) -> tuple[str, ...]:
    """The last run of a plan beside those before, as `LAST_RUN_HEADS` names them."""
    last, before = one.last_run, one.earlier_ratio
    predicted = f"{duration(last.predicted_seconds)} ± {percent(last.spread)}"
    ratios = f"{last.ratio:.2f}", "" if before is None else f"{before:.2f}"
    peak = "" if last.measured_peak_bytes is None else byte_size(last.measured_peak_bytes)
    return (str(len(one.runs)), predicted, duration(last.measured_seconds), *ratios, peak)


def runs_table(one: RunDrift) -> Markup:
    return table(RUN_HEADS, map(run_cells, one.runs), f"{one.plan} on {one.machine}")


def run_cells(run: RunEntry) -> tuple[str, ...]:
    """When a run was, its plan, and its seconds, as `RUN_HEADS` names them."""
    seconds = map(duration, (run.predicted_seconds, run.measured_seconds))
    return (run.when[:19].replace("T", " "), run.digest, str(run.steps), *seconds, f"{run.ratio:.2f}")


def unread_section(unread: Sequence[UnreadLine]) -> Markup:
    rows = [(str(line.line), line.why) for line in unread]
    return section("unread", "Lines that are not runs", table(("line", "why"), rows, "Not read") if rows else "None.")
