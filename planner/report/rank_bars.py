"""Stacked bars by rank with a line for the cap, as pictures that stretch with the page."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.report.tags import Markup, join, tag

GAPS_UP_TO = 160  # ranks up to which there are gaps between bars
GAP = 0.18  # of a bar's width


class BarSeries(NamedTuple):
    """One part of every bar."""

    name: str
    style: str  # CSS class
    values: Sequence[float]


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
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for rank, row in enumerate(rows):
        if found and found[-1][2] == row:
            found[-1] = (found[-1][0], rank, row)
        else:
            found.append((rank, rank, row))
    return [(f"{first}" if first == last else f"{first}-{last}", *row) for first, last, row in found]
