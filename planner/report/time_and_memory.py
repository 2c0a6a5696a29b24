"""Time and memory of each rank: as stacked bars with a line for the cap, and as a table."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.plan.plan_file import Breakdown
from planner.report.page_step import PageStep
from planner.report.tags import Markup, details, join, table, tag
from planner.scoring import Score
from planner.units import GIB, duration, percent

GAPS_UP_TO = 160  # ranks up to which there are gaps between bars
GAP = 0.18  # of a bar's width
HEADROOM = 1.08  # height of the picture relative to the highest bar or line


class BarSeries(NamedTuple):
    """What one part of the bars shows: its name and style, and its value for each rank."""

    name: str
    style: str  # CSS class
    values: Sequence[float]


def summed_time(steps: Sequence[PageStep]) -> tuple[float, float, float]:
    """Seconds of compute, of exposed communication and idle of the mean rank, over all steps."""
    of_steps = [shown.timeline.breakdown() for shown in steps]
    return sum(b.compute for b in of_steps), sum(b.exposed_comm for b in of_steps), sum(b.idle for b in of_steps)


def shares_section(steps: Sequence[PageStep], whose: str) -> Markup:
    """Shares of the time of the mean rank; `whose`: the end of the heading, which says what steps they are."""
    heading = f"Where the time goes, mean of all ranks{whose}"
    bar = share_bar(*summed_time(steps))
    return tag("section", tag("h2", heading, class_="small"), bar, class_="shares", aria_label=heading)


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
    """How long each rank computes and waits in a step, as bars and as a table."""
    of_ranks = shown.timeline.rank_breakdowns()
    series = [
        BarSeries("computing", "t-compute", [b.compute for b in of_ranks]),
        BarSeries("waiting for communication", "t-comm", [b.exposed_comm for b in of_ranks]),
    ]
    label = f"{shown.title}: time of each rank, {shown.label}"
    rows = merged_rows([row(b, shown.timeline.step_seconds) for b in of_ranks])
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
    states = [min(base(rank), peak) for rank, peak in enumerate(peaks)]
    limits = [score.plan_memory.allowed_bytes(rank) for rank in range(len(peaks))]
    series = [
        BarSeries("states, buffers and context", "m-states", states),
        BarSeries("activations at their peak", "m-acts", [peak - low for peak, low in zip(peaks, states, strict=True)]),
    ]
    top = max(*peaks, *limits) * HEADROOM or 1.0
    rows = merged_rows([memory_row(h, p, c) for h, p, c in zip(states, peaks, limits, strict=True)])
    heads = ("ranks", ">states, GiB", ">peak, GiB", ">allowed, GiB", ">in use")
    numbers = details("This memory as a table", table(heads, rows, f"Memory of each rank in {shown.title}, simulated"))
    return join(bars(f"{shown.title}: peak memory of each rank, simulated", series, top, limits), numbers)


def memory_row(states: float, peak: float, cap: float) -> tuple[str, ...]:
    gib = (f"{size / GIB:.2f}" for size in (states, peak, cap))
    return (*gib, percent(peak / cap) if cap > 0 else "")


def bars(label: str, parts: Sequence[BarSeries], top: float, caps: Sequence[float] = ()) -> Markup:
    """Stacked bars with a legend; `top`: the value at full height; `caps`: the cap of each rank."""
    ranks = len(parts[0].values)
    drawn = []
    below = [0.0] * ranks
    for part in parts:
        above = [low + value for low, value in zip(below, part.values, strict=True)]
        drawn.append(tag("path", d=area(below, above, top), class_=part.style))
        below = above
    if caps:
        drawn.append(tag("path", d=line(caps, top), class_="cap"))
    chosen = tag("rect", x=0, y=0, width=0, height=100, class_="chosen")
    box = f"0 0 {ranks} 100"
    svg = tag("svg", drawn, chosen, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label)
    names = [tag("li", tag("i", class_=part.style), part.name) for part in parts]
    if caps:
        names.append(tag("li", tag("i", class_="cap"), "allowed"))
    ends = tag("p", tag("span", "rank 0"), tag("span", f"rank {ranks - 1}" if ranks > 1 else ""), class_="ends")
    return join(tag("ul", names, class_="legend"), tag("div", svg, class_="bars", data_ranks=str(ranks)), ends)


def area(below: Sequence[float], above: Sequence[float], top: float) -> str:
    """SVG path of one part of all bars; equal neighbours share a bar where bars have no gaps."""
    apart = len(below) <= GAPS_UP_TO
    path, at = [], 0
    while at < len(below):
        end = at + 1
        while not apart and end < len(below) and (below[end], above[end]) == (below[at], above[at]):
            end += 1
        low, high = 100 - 100 * below[at] / top, 100 - 100 * above[at] / top
        if low - high > 0.005:
            inset = GAP / 2 if apart else 0.0
            path.append(f"M{at + inset:g},{low:.2f}V{high:.2f}H{end - inset:g}V{low:.2f}z")
        at = end
    return "".join(path)


def line(values: Sequence[float], top: float) -> str:
    """SVG path of a line that steps at each rank where the value changes."""
    path = [f"M0,{100 - 100 * values[0] / top:.2f}"]
    for rank in range(1, len(values)):
        if values[rank] != values[rank - 1]:
            path.append(f"H{rank}V{100 - 100 * values[rank] / top:.2f}")
    return "".join([*path, f"H{len(values)}"])


def merged_rows(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows of a table by rank; neighbours with equal rows share one: `0-31`."""
    merged: list[tuple[int, int, tuple[str, ...]]] = []
    for rank, row in enumerate(rows):
        if merged and merged[-1][2] == row:
            merged[-1] = (merged[-1][0], rank, row)
        else:
            merged.append((rank, rank, row))
    return [(f"{first}" if first == last else f"{first}-{last}", *row) for first, last, row in merged]
