"""Time and memory of each rank, as bars and as a table."""

from planner.plan.plan_file import Breakdown
from planner.report.page_step import PageStep
from planner.report.rank_bars import BarSeries, bars, merged_rows
from planner.report.tags import Markup, details, join, table, tag
from planner.scoring import Score
from planner.units import GIB, duration, percent

HEADROOM = 1.08  # height of the picture relative to the highest bar or line


def share_bar(compute: float, exposed: float, idle: float) -> Markup:
    """A bar of 100 % split into compute, exposed communication and idle, with the shares."""
    total = compute + exposed + idle or 1.0
    parts = (
        ("computing", "t-compute", compute),
        ("waiting for communication", "t-comm", exposed),
        ("idle", "idle", idle),
    )
    drawn, x = [], 0.0
    for _, style, seconds in parts:
        drawn.append(tag("rect", x=round(x, 3), y=0, width=round(100 * seconds / total, 3), height=10, class_=style))
        x += 100 * seconds / total
    svg = tag("svg", drawn, viewBox="0 0 100 10", preserveAspectRatio="none", class_="share", aria_hidden="true")
    names = [tag("li", tag("i", class_=style), f"{name} ", tag("b", percent(s / total))) for name, style, s in parts]
    return join(svg, tag("ul", names, class_="legend"))


def time_by_rank(shown: PageStep) -> Markup:
    """Bars of the time of each rank in a step."""
    each = shown.timeline.rank_breakdowns()
    series = [
        BarSeries("computing", "t-compute", [b.compute for b in each]),
        BarSeries("waiting for communication", "t-comm", [b.exposed_comm for b in each]),
    ]
    label = f"{shown.title}: time of each rank, {shown.label}"
    rows = merged_rows([row(b, shown.timeline.step_seconds) for b in each])
    heads = ("ranks", ">computing", ">waiting for communication", ">idle")
    numbers = details(
        "These times as a table", table(heads, rows, f"Seconds of each rank in {shown.title}, {shown.label}")
    )
    top = shown.timeline.step_seconds or 1.0
    scale = tag("p", f"the whole height is {duration(top)}", class_="note")
    return join(bars(label, series, top), scale, numbers)


def row(parts: Breakdown, step: float) -> tuple[str, ...]:
    return tuple(f"{s:.4f} ({percent(s / (step or 1.0))})" for s in (parts.compute, parts.exposed_comm, parts.idle))


def memory_by_rank(shown: PageStep, score: Score) -> Markup:
    """Bars of the memory of each rank: states, activations at the peak, and what each device allows."""
    peaks, base = score.memory.peaks, score.plan_memory.static_bytes
    held = [min(base(rank), peak) for rank, peak in enumerate(peaks)]
    limits = [score.plan_memory.allowed_bytes(rank) for rank in range(len(peaks))]
    series = [
        BarSeries("states, buffers and context", "m-states", held),
        BarSeries("activations at their peak", "m-acts", [peak - low for peak, low in zip(peaks, held, strict=True)]),
    ]
    top = max(*peaks, *limits) * HEADROOM or 1.0
    rows = merged_rows([memory_row(h, p, c) for h, p, c in zip(held, peaks, limits, strict=True)])
    heads = ("ranks", ">states, GiB", ">peak, GiB", ">allowed, GiB", ">in use")
    numbers = details("This memory as a table", table(heads, rows, f"Memory of each rank in {shown.title}, simulated"))
    return join(bars(f"{shown.title}: peak memory of each rank, simulated", series, top, limits), numbers)


def memory_row(held: float, peak: float, cap: float) -> tuple[str, ...]:
    gib = (f"{size / GIB:.2f}" for size in (held, peak, cap))
    return (*gib, percent(peak / cap) if cap > 0 else "")
