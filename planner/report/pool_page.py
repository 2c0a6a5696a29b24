"""The page of a pool's answer: days from left to right, dollars from bottom to top, a mark for each choice."""

from collections.abc import Iterator, Sequence
from math import log10
from typing import Any

from planner.pools import (
    HEADS,
    Judged,
    PoolAnswer,
    bill_text,
    downtime_text,
    notes,
    point_cells,
    question_text,
)
from planner.report.page import Figure, Page
from planner.report.tags import Markup, drawing, section, table, tag
from planner.units import percent, plural

WIDTH, HEIGHT, MARGIN = 900.0, 420.0, 70.0  # in units of the picture
ROOM = 0.06  # of the picture on each side of the outermost marks
MARKS = 5  # of an axis
RIGHT = 0.7  # of the width, from where on names are in front of their marks
GRID: dict[str, Any] = {"stroke": "currentColor", "stroke_opacity": 0.12}
LETTERS: dict[str, Any] = {"font_size": 10, "fill": "currentColor"}


def pool_page(answer: PoolAnswer, title: str) -> Page:
    chosen = answer.chosen
    lead = "Both axes are logarithmic. Filled: of the front; hollow: another is neither later nor dearer."
    choices = [point_cells(answer.limits, each) for each in answer.points]
    listed = tag("ul", [tag("li", note) for note in notes(answer.passed, answer.left_out)])
    return Page(
        kind="choices",
        title=title,
        subtitle=f"{question_text(answer.run, answer.limits)}, simulated",
        figures=(
            Figure("Days", f"{chosen.bill.days:,.1f}", chosen.offer.offered.name),
            Figure("Dollars", f"${chosen.bill.usd:,.0f}", f"${chosen.offer.offered.usd_per_hour:,.2f} an hour"),
            Figure("Chance", percent(answer.chance), "to keep the limits"),
            Figure("Downtime", percent(chosen.tariff.downtime.share), "of the days"),
        ),
        sections=(
            section("front", "Time and money", picture(answer.points), lead=lead),
            section("choices", "Choices", table(HEADS, choices, "Choices that were solved, the soonest first"), listed),
            section("downtime", "Downtime", tag("p", downtime_text(chosen))),
        ),
        data={"page": "choices"},
        summary={"page": "choices", "points": len(answer.points)},
    )


class Axis:
    """A logarithmic axis over some values, from one end of the picture to the other."""

    def __init__(self, values: Sequence[float], ends: tuple[float, float]) -> None:
        self.low, self.high = log10(min(values)), log10(max(values))
        self.first, self.last = ends
        room = ROOM * max(0.1, self.high - self.low)
        self.low, self.high = self.low - room, self.high + room

    def at(self, value: float) -> float:
        """Where a value is."""
        return self.first + (log10(value) - self.low) / (self.high - self.low) * (self.last - self.first)

    def marks(self) -> Iterator[float]:
        """Yield the values that are written beside it, to three digits."""
        for number in range(MARKS):
            yield float(f"{10 ** (self.low + (number + 0.5) / MARKS * (self.high - self.low)):.3g}")


def picture(points: Sequence[Judged]) -> Markup:
    """All points, the front joined by a line."""
    days = Axis([each.point.bill.days for each in points], (MARGIN, WIDTH - MARGIN))
    usd = Axis([each.point.bill.usd for each in points], (HEIGHT - MARGIN / 2, MARGIN / 2))
    places = [(each, days.at(each.point.bill.days), usd.at(each.point.bill.usd)) for each in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for each, x, y in places if each.by is None)
    front = tag("polyline", points=line, fill="none", stroke="currentColor", stroke_opacity=0.4)
    drawn = [part for each, x, y in places for part in mark(each, x, y)]
    label = f"{plural(len(points), 'choice')} by days and dollars"
    return drawing(label, (WIDTH, HEIGHT), axes(days, usd), front, drawn)


def mark(judged: Judged, x: float, y: float) -> Iterator[Markup]:
    """A point with its name: filled where it is of the front."""
    filled = {"fill": "currentColor"} if judged.by is None else {"fill": "none", "stroke": "currentColor"}
    point = judged.point
    title, name = (
        tag("title", f"{bill_text(point)}, {percent(point.tariff.downtime.share)} downtime"),
        point.offer.offered.name,
    )
    yield tag("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, **filled)
    ends = x > RIGHT * WIDTH
    aside, anchor = (-7.0, "end") if ends else (7.0, "start")
    yield tag("text", name, x=f"{x + aside:.1f}", y=f"{y - 5:.1f}", text_anchor=anchor, **LETTERS)


def axes(days: Axis, usd: Axis) -> Iterator[Markup]:
    """Values beside both axes, with faint lines."""
    for value in days.marks():
        x = f"{days.at(value):.1f}"
        yield tag("line", x1=x, x2=x, y1=MARGIN / 2, y2=HEIGHT - MARGIN / 2, **GRID)
        yield tag("text", f"{value:,.6g} days", x=x, y=HEIGHT - 12, text_anchor="middle", **LETTERS)
    for value in usd.marks():
        y = f"{usd.at(value):.1f}"
        yield tag("line", x1=MARGIN, x2=WIDTH - MARGIN, y1=y, y2=y, **GRID)
        yield tag("text", f"${value:,.6g}" if value < 1e6 else f"${value / 1e6:,.6g}M", x=4, y=y, **LETTERS)
