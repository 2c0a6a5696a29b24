"""The section that compares predicted with measured times: by kind of work, and the tasks that differ most."""

from collections import defaultdict
from collections.abc import Sequence

from planner.ledger import DifferenceLine, KindSeconds, StepDifference, seconds_by_kind, sum_by_name
from planner.report.page_step import PageStep
from planner.report.tags import Content, Markup, section, table, tag
from planner.units import duration, percent, signed

TASKS_SHOWN = 12  # tasks
HEADS = ("along the measured critical path", ">predicted", ">measured", ">difference")


Pair = tuple[PageStep, PageStep]  # a step as predicted and as measured


def comparison_section(pairs: Sequence[Pair], explained: Sequence[StepDifference]) -> Markup:
    """The section, a mean over steps. `explained`: the explained difference of each pair."""
    kinds = seconds_by_kind(
        [predicted.timeline for predicted, _ in pairs], [measured.timeline for _, measured in pairs]
    )
    heads = ("a step of the mean rank", ">predicted", ">measured", ">ratio")
    return section(
        "beside",
        "Predicted and measured",
        dumbbells(kinds),
        table(heads, kind_table_rows(kinds), "Seconds by kind of work"),
        difference_table(explained),
        worst_tasks(pairs),
        lead=interval_text(pairs),
    )


def interval_text(pairs: Sequence[Pair]) -> str:
    """A sentence: whether the measured step is inside the predicted interval."""
    expected = mean([predicted.timeline.step_seconds for predicted, _ in pairs])
    measured_mean = mean([measured.timeline.step_seconds for _, measured in pairs])
    spread = max(predicted.timeline.spread for predicted, _ in pairs)
    inside = abs(measured_mean / expected - 1) <= spread if expected else False
    of = f", mean of {len(pairs)} steps" if len(pairs) > 1 else ""
    return (
        f"Predicted {duration(expected)} ± {percent(spread)} (simulated), measured {duration(measured_mean)}{of}: "
        f"{'inside' if inside else 'outside'} the 80 % interval."
    )


def kind_table_rows(kinds: Sequence[KindSeconds]) -> list[tuple[str, ...]]:
    rows = [(k.name, duration(k.predicted), duration(k.measured), ratio(k.predicted, k.measured)) for k in kinds]
    whole = sum(k.predicted for k in kinds), sum(k.measured for k in kinds)
    return [*rows, ("the step", duration(whole[0]), duration(whole[1]), ratio(*whole))]


def ratio(predicted: float, measured: float) -> str:
    return f"{measured / predicted:.2f}" if predicted > 0 else ""


def dumbbells(kinds: Sequence[KindSeconds]) -> Markup:
    """A picture with two marks on a line for each kind of work."""
    top = max((max(k.predicted, k.measured) for k in kinds), default=0.0) or 1.0
    drawn = []
    for at, kind in enumerate(kinds):
        y, low, high = 44 * at + 33, *sorted((kind.predicted, kind.measured))
        drawn += [
            tag("text", kind.name, x="0", y=y - 14, class_="name"),
            tag("line", x1=pc(low, top), x2=pc(high, top), y1=y, y2=y, class_="between"),
            tag("circle", cx=pc(kind.predicted, top), cy=y, r=5, class_="predicted"),
            tag("circle", cx=pc(kind.measured, top), cy=y, r=5, class_="measured"),
        ]
    svg = tag(
        "svg",
        drawn,
        width="100%",
        height=44 * len(kinds) + 6,
        role="img",
        aria_label="Predicted and measured seconds by kind of work",
        class_="dumbbells",
    )
    names = (tag("li", tag("i", class_="predicted"), "predicted"), tag("li", tag("i", class_="measured"), "measured"))
    return tag("div", tag("ul", names, class_="legend"), svg)


def pc(seconds: float, top: float) -> str:
    return f"{1 + 97 * seconds / top:.2f}%"


def worst_tasks(pairs: Sequence[Pair]) -> Content:
    """A table of the compute tasks that differ most; a task that several ranks measured is averaged."""
    seconds_of: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for predicted, measured in pairs:
        expected = {event.id: event.seconds for event in predicted.timeline.events}
        for event in measured.timeline.events:
            twin = predicted.timeline.representative_task(event.id)
            if event.stream == "compute" and twin in expected:
                seconds_of[event.id][0].append(expected[twin])
                seconds_of[event.id][1].append(event.seconds)
    means = [(task, mean(expected), mean(seconds)) for task, (expected, seconds) in seconds_of.items()]
    means.sort(key=lambda one: (-abs(one[2] - one[1]), one[0]))
    rows = [(tag("code", t), duration(p), duration(m), ratio(p, m)) for t, p, m in means[:TASKS_SHOWN]]
    heads = ("task", ">predicted", ">measured", ">ratio")
    return table(heads, rows, "Compute tasks that differ most") if rows else None


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def difference_table(steps: Sequence[StepDifference]) -> Markup:
    """The difference that `planner simulate --measured` prints, as a mean over steps: rows add up to the last one."""
    rows = [
        (line.name, duration(line.simulated), duration(line.measured), signed(line.difference))
        for line in difference_lines(steps)
    ]
    return table(HEADS, rows, "The difference by kind of work; predicted times are simulated")


def difference_lines(steps: Sequence[StepDifference]) -> list[DifferenceLine]:
    """Lines by kind of work, in the order of the step with most kinds; then the step."""
    kinds = sorted((step.by_kind() for step in steps), key=len, reverse=True)
    whole = [DifferenceLine("the step", step.simulated, step.measured) for step in steps]
    sums = sum_by_name(line for of_step in (*kinds, whole) for line in of_step)
    return [DifferenceLine(name, simulated / len(steps), measured / len(steps)) for name, simulated, measured in sums]
