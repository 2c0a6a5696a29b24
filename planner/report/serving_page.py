"""The page of a served model: instances from top to bottom, time from left to right, a colour for what each does; and
the queues below.
"""

from collections.abc import Iterator, Sequence

from planner.report.page import Figure, Page
from planner.report.tags import Markup, bar, details, drawing, lane_name, section, table, tag
from planner.simulate.serving import ANSWERS, IMAGES, PROMPTS, SWITCH, ServingHistory
from planner.units import plural

WIDTH, LEFT, LANE, QUEUES = 1000.0, 120.0, 14.0, 120.0  # in units of the picture
MOST = 20_000  # bars of one picture
COLOURS = {
    IMAGES: ("hsl(275 55% 55%)", "encodes"),
    PROMPTS: ("hsl(25 85% 55%)", "prefills"),
    ANSWERS: ("hsl(205 65% 50%)", "decodes"),
    SWITCH: ("hsl(0 0% 60%)", "takes on other stages"),
}
QUEUE_COLOURS = (COLOURS[IMAGES][0], COLOURS[PROMPTS][0], COLOURS[ANSWERS][0])
QUEUE_NAMES = ("to be encoded", "to be prefilled", "to move to where it is answered")
Bar = tuple[int, int, float, float]  # instance, doing, from, to


def serving_page(history: ServingHistory, title: str, lanes: Sequence[str]) -> Page:
    """The page of a run; `lanes`: what each instance does."""
    bars = joined(history.busy)
    shown, end = bars[:MOST], max(history.done)
    served = [history.served(number) for number in range(len(history.requests))]
    first, each = (sorted(getattr(one, name) for one in served) for name in ("ttft", "tpot"))
    middle, high = len(served) // 2, int(0.9 * (len(served) - 1))
    lead = "Each bar is what an instance does: " + ", ".join(word for _, word in COLOURS.values()) + "."
    if len(shown) < len(bars):
        lead += f" The first {MOST:,} of {len(bars):,} are drawn."
    lanes = [*lanes, *(f"instance {number}" for number in range(len(lanes), 1 + max(bar[0] for bar in bars)))]
    lines = [(lanes[lane], COLOURS[doing][1], f"{since:,.3f}", f"{until:,.3f}") for lane, doing, since, until in shown]
    heads = ("instance", "does", ">from, s", ">to, s")
    peak = [max((at[number] for at in history.queues), default=0) for number in (1, 2, 3)]
    return Page(
        kind="serving",
        title=title,
        subtitle=f"{plural(len(served), 'request')} on {plural(len(lanes), 'instance')}, simulated",
        figures=(
            Figure("First token", f"{first[middle]:.3f} s", f"p90 {first[high]:.3f} s"),
            Figure("Each further token", f"{each[middle] * 1e3:.1f} ms", f"p90 {each[high] * 1e3:.1f} ms"),
            Figure("Longest queue", str(max(peak)), "requests that wait for a stage"),
            Figure("Turns", str(history.moves), "instances that took on other stages"),
        ),
        sections=(
            section(
                "instances",
                "Instances over time",
                picture(history, shown, lanes, end),
                details("The bars as a table", table(heads, lines, "Who did what, and when")),
                lead=lead,
            ),
        ),
        data={"page": "serving"},
        summary={"page": "serving", "requests": len(served)},
    )


def joined(busy: Sequence[Bar]) -> list[Bar]:
    """Bars in order of time; those of an instance that go on with the same are one."""
    open_: dict[int, Bar] = {}
    found = list[Bar]()
    for shown in sorted(busy, key=lambda each: each[2]):
        lane, doing, since, until = shown
        before = open_.get(lane)
        if before and before[1] == doing and since - before[3] < 1e-9:
            open_[lane] = (lane, doing, before[2], until)
            continue
        found += [before] if before else []
        open_[lane] = shown
    return sorted([*found, *open_.values()], key=lambda each: (each[2], each[0]))


def picture(history: ServingHistory, bars: Sequence[Bar], lanes: Sequence[str], end: float) -> Markup:
    """Lanes of instances, and under them how many requests wait for what."""
    scale, bottom = (WIDTH - LEFT) / (end or 1.0), LANE * len(lanes)
    names = (lane_name(text, LANE * (number + 0.75)) for number, text in enumerate(lanes))
    drawn = (bar_of(each, lanes, scale) for each in bars)
    label = f"{plural(len(lanes), 'instance')} over {end:,.0f} s, and queues"
    return drawing(label, (WIDTH, bottom + QUEUES + 40.0), names, drawn, queue_lines(history, bottom + 20.0, scale))


def bar_of(shown: Bar, lanes: Sequence[str], scale: float) -> Markup:
    lane, doing, since, until = shown
    colour, word = COLOURS[doing]
    title = f"{lanes[lane]} {lane}: {word}, {since:,.3f} to {until:,.3f} s"
    return bar(title, (LEFT + since * scale, LANE * lane + 1.0), ((until - since) * scale, LANE - 2.0), colour)


def queue_lines(history: ServingHistory, top: float, scale: float) -> Iterator[Markup]:
    """Yield a line for each queue, and its name."""
    most = max((max(at[1:]) for at in history.queues), default=0) or 1
    every = max(1, len(history.queues) // MOST * 3)
    for number, (colour, name) in enumerate(zip(QUEUE_COLOURS, QUEUE_NAMES, strict=True)):
        points = " ".join(
            f"{LEFT + at[0] * scale:.1f},{top + QUEUES * (1.0 - at[number + 1] / most):.1f}"
            for at in history.queues[::every]
        )
        yield tag("polyline", points=points, fill="none", stroke=colour, stroke_width=1)
        yield tag("text", name, x=0, y=f"{top + 12.0 * (number + 1):.1f}", font_size=8, fill=colour)
    yield tag("text", f"{most} wait", x=LEFT, y=f"{top - 4.0:.1f}", font_size=8, fill="currentColor")
