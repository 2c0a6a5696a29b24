"""The timeline section of plans and recordings: ranks in time, and the same as tables."""

from collections import defaultdict
from collections.abc import Sequence

from planner.report.page import per_step
from planner.report.page_step import PageStep, task_counts
from planner.report.tags import Content, Markup, details, section, table, tag
from planner.report.timeline_columns import split_task_id
from planner.units import duration, plural

STEPS_WIDE = 60  # steps with a bar each to choose from; more are in a list
LEAD = (
    "Each row is a rank, time runs to the right; ranks that do the same are drawn as one block. "
    "Ctrl and the wheel, a pinch, or + and − zoom; drag or the arrow keys move. "
    "Of a long step, micro-batches are drawn as one until there is room for each. "
    "A task with a share of its devices is as high as that share of its row."
)
COLOURS = (("pass", "forward and backward"), ("group", "size of group"), ("source", "source of the price"))
BUTTONS = (
    ("zoom-out", "−", "Zoom out in time"),
    ("zoom-in", "+", "Zoom in in time"),
    ("flatter", "↕−", "More ranks"),
    ("taller", "↕+", "Fewer, taller ranks"),
    ("reset", "Fit", "The whole step, all ranks"),
    ("previous", "‹", "Previous task of the chosen rank"),
    ("next", "›", "Next task of the chosen rank"),
)


def timeline_section(steps: Sequence[PageStep]) -> Markup:
    """The section: canvas, controls, readout of the task under the pointer, and tables."""
    readout = tag("div", tag("p", "Hover over a task, or tap it.", class_="note"), id="readout", aria_live="polite")
    key = tag("ul", id="key", class_="legend")
    live = tag("div", tools(), key, tag("div", canvas(), minimap(), class_="stage"), readout, class_="live")
    inside = details("The tasks in view as a table", tag("div", id="in-view"), id="in-view-details", class_="live")
    tables = [details("Tasks of this step, by kind", tasks(shown)) for shown in steps]
    return section("timeline-section", "Ranks in time", chooser(steps), live, inside, per_step(tables), lead=LEAD)


def tools() -> Markup:
    """The buttons that zoom and move, the colours to choose from, and the switch of the critical path."""
    buttons = [
        tag("button", text, type="button", data_do=do, aria_label=name, title=name) for do, text, name in BUTTONS
    ]
    options = [tag("option", text, value=value) for value, text in COLOURS]
    colours = tag("label", "Colour by ", tag("select", options, id="colour"))
    path = tag("label", tag("input", type="checkbox", id="path"), "Critical path")
    zoom = tag("div", buttons, class_="buttons")
    return tag("div", zoom, colours, path, class_="tools", role="group", aria_label="View of the timeline")


def canvas() -> Markup:
    return tag(
        "canvas",
        "The tables below show the same in numbers.",
        id="timeline",
        tabindex="0",
        role="application",
        aria_label="Timeline by rank. Plus and minus zoom, left and right move in time, up and down choose a rank, "
        "full stop and comma go from task to task, 0 shows the whole step.",
        aria_describedby="readout",
    )


def minimap() -> Markup:
    """The whole of a long step, with the window in it to drag: what the canvas above does by keys too."""
    return tag("canvas", "", id="minimap", hidden=True, role="img", aria_label="The whole step")


def chooser(steps: Sequence[PageStep]) -> Content:
    """Chooser of the step: bars by length, or a list if there are many."""
    if len(steps) < 2:
        return None
    longest = max(shown.timeline.step_seconds for shown in steps)
    if len(steps) > STEPS_WIDE:
        options = [tag("option", step_name(shown), value=str(at)) for at, shown in enumerate(steps)]
        return tag("p", tag("label", "Step ", tag("select", options, id="step")), class_="live")
    mixed = len({shown.label for shown in steps}) > 1
    buttons = [step_button(at, shown, longest, mixed) for at, shown in enumerate(steps)]
    return tag("div", buttons, class_="steps live", role="radiogroup", aria_label="Step to show")


def step_button(at: int, shown: PageStep, longest: float, mixed: bool) -> Markup:
    """A bar of the chooser; `mixed`: the page has predicted and measured steps, so each is labelled."""
    number = shown.title.removeprefix("step ")
    plain = number if number == shown.title or not mixed else f"{shown.label} {number}"
    return tag(
        "button",
        step_bar(shown, longest),
        tag("b", plain),
        tag("span", duration(shown.timeline.step_seconds)),
        type="button",
        role="radio",
        aria_checked="true" if at == 0 else "false",
        tabindex="0" if at == 0 else "-1",
        data_step=str(at),
        aria_label=step_name(shown),
    )


def step_name(shown: PageStep) -> str:
    return f"{shown.title}, {duration(shown.timeline.step_seconds)} {shown.label}"


def step_bar(shown: PageStep, longest: float) -> Markup:
    high = 100 * shown.timeline.step_seconds / (longest or 1.0)
    style = "measured" if shown.label == "measured" else "simulated"
    bar = tag("rect", x=0, y=round(100 - high, 2), width=10, height=round(high, 2), class_=style)
    return tag("svg", bar, viewBox="0 0 10 100", preserveAspectRatio="none", aria_hidden="true")


def tasks(shown: PageStep) -> Markup:
    """Count and duration of tasks by kind; the sum is over ranks."""
    seconds_of: dict[str, list[float]] = defaultdict(list)
    count: dict[str, float] = defaultdict(float)
    total: dict[str, float] = defaultdict(float)
    for event, stands_for in zip(shown.timeline.events, task_counts(shown.timeline), strict=True):
        text = split_task_id(event.id, shown.facts.get(event.id))[0]
        seconds_of[text].append(event.seconds)
        count[text] += stands_for
        total[text] += event.seconds * len(event.ranks) * stands_for
    rows = [
        (text, f"{count[text]:,.0f}", milliseconds(min(times)), milliseconds(max(times)), f"{total[text]:.4f}")
        for text, times in seconds_of.items()
    ]
    caption = f"{step_name(shown)}: {plural(round(sum(count.values())), 'task')}"
    return table(("task", ">count", ">shortest, ms", ">longest, ms", ">rank-seconds"), rows, caption)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
