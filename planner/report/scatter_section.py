"""The scatter plot of predicted against measured: points for the page's script, and the section that shows them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from planner.report.tags import Markup, details, section, table, tag
from planner.units import plural

DIGITS = 5  # significant, of a point: finer than any screen


class Point(NamedTuple):
    """One measurement and its prediction, in the unit of its panel."""

    source: str
    name: str
    measured: float
    predicted: float
    spread: float  # half-width of the 80 % interval; 0: none


class Panel(NamedTuple):
    """The points of one quantity."""

    key: str
    title: str
    unit: str
    points: Sequence[Point]


def scatter_data(panels: Sequence[Panel], sources: Sequence[str]) -> dict[str, Any]:
    """Columns of points for the page's script, with sources by number."""
    number = {name: at for at, name in enumerate(sources)}
    return {
        "sources": [*sources],
        "panels": [
            {
                "key": panel.key,
                "title": panel.title,
                "unit": panel.unit,
                "source": [number[p.source] for p in panel.points],
                "name": [p.name for p in panel.points],
                "measured": [rounded(p.measured) for p in panel.points],
                "predicted": [rounded(p.predicted) for p in panel.points],
                "spread": [rounded(p.spread) for p in panel.points],
            }
            for panel in panels
        ],
    }


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def scatter_section(panels: Sequence[Panel]) -> Markup:
    """The section: a canvas for each quantity, and a choice of sources below them."""
    drawn = [plot(at, panel) for at, panel in enumerate(panels)]
    hint = "Hover over a mark, or tap it. Choose single sources below."
    readout = tag("p", hint, id="point", class_="note", aria_live="polite")
    sources = tag("div", id="sources", role="group", aria_label="Sources to show")
    live = tag("div", tag("div", drawn, class_="panels"), readout, sources, class_="live")
    lead = "Every mark is a measured record: on the diagonal, predicted exactly; between the dashed lines, within 10 %."
    return section("scatter", "Predicted against measured", live, *point_tables(panels), lead=lead)


def point_tables(panels: Sequence[Panel]) -> list[Markup]:
    """A folded table of all points for each quantity."""
    heads = ("record", "source", ">measured", ">predicted", ">error")
    return [
        details(
            f"{panel.title}: {plural(len(panel.points), 'record')} as a table",
            table(heads, [cells(point) for point in panel.points], f"{panel.title}, {panel.unit}"),
        )
        for panel in panels
    ]


def cells(point: Point) -> tuple[str, ...]:
    error = f"{100 * (point.predicted / point.measured - 1):+.1f} %"
    return point.name, point.source, f"{point.measured:.4g}", f"{point.predicted:.4g}", error


def plot(at: int, panel: Panel) -> Markup:
    canvas = tag(
        "canvas",
        "The tables below list the errors.",
        tabindex="0",
        role="application",
        data_panel=str(at),
        aria_label=f"{panel.title}: predicted against measured. Left and right go from point to point.",
        aria_describedby="point",
    )
    name = tag("figcaption", f"{panel.title}, {panel.unit}")
    return tag("figure", name, tag("div", canvas, class_="stage square"))
