"""The page of a recording: its timeline, and where each rank's time goes."""

from collections.abc import Sequence
from statistics import median

from planner.report.page import Figure, Page, per_step
from planner.report.page_step import PageStep
from planner.report.tags import section
from planner.report.time_and_memory import shares_section, summed_time, time_by_rank
from planner.report.timeline_columns import TimelineColumns
from planner.report.timeline_section import timeline_section
from planner.units import duration, percent, plural


def timeline_page(title: str, steps: Sequence[PageStep]) -> Page:
    """The page of all recorded steps."""
    label = steps[0].label
    values = [shown.timeline.step_seconds for shown in steps]
    sums = summed_time(steps)
    ranks, tasks = steps[0].timeline.ranks, sum(len(shown.timeline.events) for shown in steps)
    over = f"{duration(min(values))} to {duration(max(values))}, " if len(steps) > 1 else ""
    whole = sum(sums) or 1.0
    return Page(
        kind="timeline",
        title=title,
        subtitle=f"{label} · {plural(ranks, 'rank')} · {plural(len(steps), 'step')} · {plural(tasks, 'event')}",
        figures=(
            Figure("Median step" if len(steps) > 1 else "Step", duration(median(values)), f"{over}{label}"),
            Figure("Computing", percent(sums[0] / whole), f"of the mean rank, {label}"),
            Figure("Waiting for communication", percent(sums[1] / whole), f"of the mean rank, {label}"),
            Figure("Idle", percent(sums[2] / whole), f"of the mean rank, {label}"),
        ),
        sections=(
            shares_section(steps, f", {label}"),
            timeline_section(steps),
            section("by-rank", "Where each rank's time goes", per_step([time_by_rank(shown) for shown in steps])),
        ),
        data={"page": "timeline", **TimelineColumns(steps).data(), "caps": [], "ranksOf": {}, "measured": []},
        summary=summary(title, steps),
    )


def summary(title: str, steps: Sequence[PageStep]) -> dict[str, object]:
    return {
        "page": "timeline",
        "plan": title,
        "label": steps[0].label,
        "ranks": steps[0].timeline.ranks,
        "steps": len(steps),
        "tasks": sum(len(shown.timeline.events) for shown in steps),
        "step_seconds": median(shown.timeline.step_seconds for shown in steps),
    }
