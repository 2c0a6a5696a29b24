"""Scatter plot of predicted against measured values as SVG: equal logarithmic axes, one mark per source."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from planner.ledger.accuracy import AccuracyReport
from planner.ledger.predicted_records import PredictedRecord
from planner.printable import printable
from planner.units import GIB, percent

SIDE = 500  # px: side of the plot area
LEFT, TOP, BOTTOM, LEGEND = 64, 44, 48, 350
TIME, MEMORY = 250, 316  # px: right edges of the legend's columns of median errors
LINE = 17  # px: line height of the legend
ERROR_LINES = 0.1  # relative error of the thin lines beside the diagonal
# Light and dark mode, as in report/assets/style.css: each has a contrast of 3:1 with its background at the opacity of a
# mark. Eight hues and seven shapes give 56 sources distinct marks.
COLOURS = (
    ("#2a78d6", "#5b9ee9"),
    ("#c2500f", "#ee8450"),
    ("#12806a", "#2fbf97"),
    ("#9a6b00", "#d9a520"),
    ("#b83f7c", "#e580b0"),
    ("#3b7d1f", "#74b852"),
    ("#5b48c2", "#9d92ef"),
    ("#c23030", "#f07878"),
)
SHAPES = (
    "M-4,0A4,4 0 1 0 4,0A4,4 0 1 0 -4,0Z",
    "M-3.6,-3.6H3.6V3.6H-3.6Z",
    "M0,-5L5,0L0,5L-5,0Z",
    "M0,-4.8L4.6,3.6H-4.6Z",
    "M0,4.8L4.6,-3.6H-4.6Z",
    "M-1.5,-4.8H1.5V-1.5H4.8V1.5H1.5V4.8H-1.5V1.5H-4.8V-1.5H-1.5Z",
    "M-4.6,-2.4L-2.4,-4.6L0,-2.2L2.4,-4.6L4.6,-2.4L2.2,0L4.6,2.4L2.4,4.6L0,2.2L-2.4,4.6L-4.6,2.4L-2.2,0Z",
)
STYLE = """
.page{fill:#ffffff}.ink{fill:#1d1d1b}.soft{fill:#66645e}.grid{stroke:#e6e4de}.edge{stroke:#1d1d1b}.near{stroke:#8b8981}
.mark{stroke:#ffffff;stroke-width:.6;fill-opacity:.85}
text{font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}.title{font-size:14px;font-weight:600}
"""
DARK = """
.page{fill:#1a1a19}.ink{fill:#f1f0ec}.soft{fill:#b0aea5}.grid{stroke:#34332f}.edge{stroke:#f1f0ec}.near{stroke:#7d7b74}
.mark{stroke:#1a1a19}
"""


@dataclass(frozen=True, slots=True)
class PlotQuantity:
    """The quantity that a panel compares."""

    title: str
    unit: str
    value: Callable[[PredictedRecord], tuple[float, float] | None]  # measured and predicted, in that unit


def measured_and_predicted_seconds(record: PredictedRecord) -> tuple[float, float] | None:
    return None if record.seconds is None else (record.seconds, record.prediction.seconds)


def measured_and_predicted_gib(record: PredictedRecord) -> tuple[float, float] | None:
    return None if record.memory_bytes is None else (record.memory_bytes / GIB, record.prediction.memory_bytes / GIB)


PANELS = (
    PlotQuantity("Time of a step", "s", measured_and_predicted_seconds),
    PlotQuantity("Peak memory of a rank", "GiB", measured_and_predicted_gib),
)


def accuracy_svg(account: AccuracyReport) -> str:
    """The SVG text: a panel for time and one for memory, where records have them, and the legend."""
    panels = [panel for panel in PANELS if any(panel.value(record) for record in account.records)]
    drawn = {record.case.origin.source for record in account.records if any(panel.value(record) for panel in panels)}
    marks = {name: at for at, name in enumerate(name for name in account.sources if name in drawn)}
    width = len(panels) * (LEFT + SIDE) + LEGEND
    height = TOP + max(SIDE, LINE * (len(marks) + 2)) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>Predicted against measured, by source</title>",
        f"<style>{STYLE}{colour_classes(0)}@media(prefers-color-scheme:dark){{{DARK}{colour_classes(1)}}}</style>",
        "<defs>" + "".join(f'<path id="m{at}" d="{shape}"/>' for at, shape in enumerate(SHAPES)) + "</defs>",
        f'<rect class="page" width="{width}" height="{height}"/>',
    ]
    for at, panel in enumerate(panels):
        parts.append(f'<g transform="translate({LEFT + at * (LEFT + SIDE)},{TOP})">')
        parts += scatter_panel(panel, account.records, marks)
        parts.append("</g>")
    parts.append(f'<g transform="translate({len(panels) * (LEFT + SIDE) + 24},{TOP})">')
    parts += legend(account, marks)
    return printable("\n".join([*parts, "</g>", "</svg>", ""]))


def colour_classes(mode: int) -> str:
    """CSS classes of the hues in light (0) or dark (1) mode."""
    return "".join(f".c{at}{{fill:{pair[mode]}}}" for at, pair in enumerate(COLOURS))


def source_mark(at: int, x: float, y: float) -> str:
    """An unclosed `use` element, so that it can hold a title."""
    shape, colour = at % len(SHAPES), at % len(COLOURS)
    return f'<use href="#m{shape}" class="mark c{colour}" x="{x:.1f}" y="{y:.1f}"'


def scatter_panel(panel: PlotQuantity, records: Sequence[PredictedRecord], marks: dict[str, int]) -> Iterator[str]:
    """One panel: grid, diagonal and error lines, marks; sources with fewer records are drawn on top."""
    points = [(record, *pair) for record in records if (pair := panel.value(record))]
    values = [value for _, *pair in points for value in pair]
    low, high = min(values) / 1.25, max(values) * 1.25

    def px(value: float) -> float:
        return SIDE * math.log(value / low) / math.log(high / low)

    yield f'<text class="ink title" y="-16">{panel.title}</text>'
    for tick in ticks(low, high):
        at = px(tick)
        yield f'<path class="grid" d="M{at:.1f},0V{SIDE}M0,{SIDE - at:.1f}H{SIDE}"/>'
        yield f'<text class="soft" x="{at:.1f}" y="{SIDE + 16}" text-anchor="middle">{tick:g}</text>'
        yield f'<text class="soft" x="-7" y="{SIDE - at + 4:.1f}" text-anchor="end">{tick:g}</text>'
    yield f'<text class="soft" x="{SIDE / 2}" y="{SIDE + 35}" text-anchor="middle">measured, {panel.unit}</text>'
    where = f'transform="translate(-46,{SIDE / 2}) rotate(-90)"'
    yield f'<text class="soft" {where} text-anchor="middle">predicted, {panel.unit}</text>'
    for factor, kind in ((1 - ERROR_LINES, "near"), (1 + ERROR_LINES, "near"), (1.0, "edge")):
        yield diagonal(px(max(low, low / factor)), px(min(high, high / factor)), px(low * factor) - px(low), kind)
    many = Counter(record.case.origin.source for record, *_ in points)
    for record, measured, predicted in sorted(points, key=lambda point: -many[point[0].case.origin.source]):
        origin = record.case.origin
        label = f"{origin.source} {origin.record_id}: {measured:.4g} {panel.unit} measured, {predicted:.4g} predicted"
        mark = source_mark(marks[origin.source], px(measured), SIDE - px(predicted))
        yield f"{mark}><title>{escape(label)}</title></use>"


def diagonal(first: float, last: float, up: float, kind: str) -> str:
    """A line parallel to the diagonal, `up` px above it, from one abscissa to another."""
    dash = ' stroke-dasharray="3 3"' if kind == "near" else ""
    return f'<path class="{kind}"{dash} d="M{first:.1f},{SIDE - first - up:.1f}L{last:.1f},{SIDE - last - up:.1f}"/>'


def ticks(low: float, high: float) -> Iterator[float]:
    """Powers of ten, with 2 and 5 between them where labels have room."""
    steps = (1, 2, 5) if high / low < 1e4 else (1,)
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high))):
        for step in steps:
            tick = step * 10.0**power
            if low <= tick <= high:
                yield tick


def legend(account: AccuracyReport, marks: dict[str, int]) -> Iterator[str]:
    """The mark of each source, with its median errors of time and memory where it has them."""
    yield legend_number("soft", TIME, -16, "time") + legend_number("soft", MEMORY, -16, "memory")
    for at, (name, number) in enumerate(marks.items()):
        y, found = at * LINE, account.sources[name]
        yield f"{source_mark(number, 4, y - 4)}/>" + f'<text class="ink" x="16" y="{y}">{escape(name)}</text>'
        for x, error in ((TIME, found.time_median_error), (MEMORY, found.memory_median_error)):
            if error is not None:
                yield legend_number("soft", x, y, percent(error))
    y = (len(marks) + 1) * LINE
    yield f'<path class="edge" d="M0,{y - 4}H20"/><text class="soft" x="28" y="{y}">as measured</text>'
    near = f"± {percent(ERROR_LINES)} of it".replace(".0", "")
    yield f'<path class="near" stroke-dasharray="3 3" d="M130,{y - 4}H150"/>'
    yield f'<text class="soft" x="158" y="{y}">{near}</text>'


def legend_number(kind: str, x: float, y: float, text: str) -> str:
    """A right-aligned number in a legend column."""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="end">{text}</text>'
