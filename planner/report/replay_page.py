"""The page of traces that torch.profiler recorded: ranks from top to bottom and time from left to right, with the
critical path; what the steps are bound by; who waited for whom, and why.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from planner.replay import OperatorShare, PathLink, Replay, is_communication, kernel_class
from planner.replay.timing import Straggler, Verdict
from planner.report.page import Figure, Page
from planner.report.tags import Markup, bar, drawing, join, lane_name, section, table, tag
from planner.units import duration, percent, plural

WIDTH, LEFT, LANE, GAP = 1000.0, 60.0, 8.0, 6.0  # in units of the picture
FINEST = 1000  # parts of the whole time that are told apart
MOST_RANKS = 64  # in the picture
SHOWN = 30  # lines of a table
LANES = {  # lanes of a rank from top to bottom, with their colours
    "critical path": "#c0392b",
    "compute": "#2f6db5",
    "communication": "#c98a1b",
}

Spans = list[tuple[float, float]]  # begin and end in seconds


class ReplayFindings(NamedTuple):
    """A replay and what was found of it."""

    replay: Replay
    verdict: Verdict
    path: Sequence[PathLink]
    operators: Sequence[OperatorShare]
    stragglers: Sequence[Straggler]
    notes: Sequence[str]


def replay_page(title: str, found: ReplayFindings) -> Page:
    """The page of a replay."""
    replay, verdict, path, operators, stragglers, notes = found
    named, _, what = verdict.text.partition(":")
    ranks, steps = len(replay.graphs), len(replay.graphs[0].steps)
    slow = next((late for late in stragglers if late.slow), None)
    figures = [
        Figure("Median step", duration(replay.measured_step_seconds), "measured, until its work ends on the device"),
        Figure(named, percent(verdict.shares[verdict.bound]), f"of the critical path: {what.strip()}"),
        Figure("Explained", percent(verdict.explained), explained_text(verdict)),
        Figure("The host runs ahead", duration(verdict.host_ahead), "of the device at the end of a step"),
    ]
    if slow and slow.cause:
        figures.append(Figure(f"Rank {slow.rank} is slow", duration(slow.delay), slow.cause.text))
    total = sum(link.seconds for link in path) or 1.0
    lines = [
        (each.operator, each.kind, duration(each.seconds), percent(each.seconds / total), f"{each.times:,}")
        for each in operators[:SHOWN]
    ]
    heads = ("operator", "kind", ">seconds", ">share", ">count")
    return Page(
        kind="recording",
        title=title,
        subtitle=f"measured and replayed · {plural(ranks, 'rank')} · {plural(steps, 'step')}",
        figures=tuple(figures),
        sections=(
            section("ranks", "Ranks over time", picture(replay, path), lead="As replayed."),
            section("time", "Where each rank's time goes", breakdown_table(replay)),
            *([section("waits", "Who waits for whom", wait_table(stragglers))] if stragglers else []),
            section("path", "The critical path", table(heads, lines, "Operators on the critical path of all steps")),
            section("notes", "What the recording lacks", tag("ul", [tag("li", note) for note in notes])),
        ),
        data={"page": "recording"},
        summary={"page": "recording", "ranks": ranks, "steps": steps, "bound": verdict.bound},
    )


def explained_text(verdict: Verdict) -> str:
    """By what the steps are explained."""
    shown = percent(verdict.explained - verdict.hidden)
    if verdict.hidden < 0.0005:
        return "of the steps, by what the trace shows"
    return f"of the steps: {shown} by what the trace shows, the rest by work within launched graphs"


def breakdown_table(replay: Replay) -> Markup:
    """Parts of the mean step of each rank."""
    heads = ("rank", ">compute", ">overlapped", ">exposed communication", ">copies", ">idle")
    lines = []
    for g, graph in enumerate(replay.graphs):
        parts = replay.breakdown(g).parts
        whole = sum(parts) or 1.0
        lines.append((str(graph.trace.rank), *(f"{duration(each)} ({percent(each / whole)})" for each in parts)))
    return table(heads, lines, "The mean step of each rank, replayed")


def wait_table(stragglers: Sequence[Straggler]) -> Markup:
    """Ranks that others wait for, and why."""
    heads = ("rank", ">last to arrive", ">others waited", ">delays the job by", "why")
    lines = [
        (
            str(late.rank),
            f"{late.last} of {late.of}",
            duration(late.kept_waiting),
            duration(late.delay),
            late.cause.text if late.cause else "",
        )
        for late in stragglers
    ]
    return table(heads, lines, "Waits in collectives, by the rank that was waited for")


def picture(replay: Replay, path: Sequence[PathLink]) -> Markup:
    """A band of each rank with a lane of compute, one of communication, and one of its part of the critical path."""
    shown = replay.graphs[:MOST_RANKS]
    windows = [window for g in range(len(shown)) for window in replay.step_windows(g)]
    low, high = min((low for low, _ in windows), default=0.0), max((high for _, high in windows), default=1.0)
    scale = (WIDTH - LEFT) / ((high - low) or 1.0)
    drawn: list[Markup] = []
    for g, graph in enumerate(shown):
        top = g * (len(LANES) * LANE + GAP)
        drawn.append(lane_name(f"rank {graph.trace.rank}", top + 2 * LANE))
        mine = [(link.start, link.end) for link in path if link.rank == graph.trace.rank]
        for number, (lane, spans) in enumerate(zip(LANES, (mine, *work_spans(replay, g)), strict=True)):
            drawn += lane_bars(lane, merged(spans, (high - low) / FINEST), (low, high, scale), top + number * LANE)
    height = len(shown) * (len(LANES) * LANE + GAP)
    label = f"{plural(len(shown), 'rank')} over {duration(high - low)}"
    more = f"; the first {MOST_RANKS} of {len(replay.graphs)} ranks" if len(shown) < len(replay.graphs) else ""
    legend = tag("p", f"from top to bottom: {', '.join(LANES)}{more}", class_="note")
    return join(drawing(label, (WIDTH, height), drawn), legend)


def work_spans(replay: Replay, g: int) -> tuple[Spans, Spans]:
    """Compute and communication of a rank over time, replayed; without a device, operators of the host."""
    graph = replay.graphs[g]
    starts, ends = (each.tolist() for each in replay.op_times(g))
    found: tuple[Spans, Spans] = ([], [])
    for op, start, end in zip(graph.trace.ops, starts, ends, strict=True):
        found[is_communication(kernel_class(op.name, op.kind))].append((start, end))
    if not found[0]:
        host, begin = graph.trace.host, replay.matched.begins[g]
        works = ~host.annotation
        found[0].extend(zip((host.start[works] + begin).tolist(), (host.end[works] + begin).tolist(), strict=True))
    return found


def merged(spans: Spans, gap: float) -> Spans:
    """Spans that follow each other within a gap, as one."""
    if not spans:
        return []
    ordered = np.array(sorted(spans))
    ends = np.maximum.accumulate(ordered[:, 1])
    first = np.concatenate([[True], ordered[1:, 0] > ends[:-1] + gap])
    at = np.flatnonzero(first)
    lasts = np.concatenate([at[1:] - 1, [len(ordered) - 1]])
    return [*zip(ordered[at, 0].tolist(), ends[lasts].tolist(), strict=True)]


def lane_bars(lane: str, spans: Spans, frame: tuple[float, float, float], top: float) -> Iterator[Markup]:
    """Bars of one lane; `frame`: begin and end of the picture in seconds, and its units in a second."""
    low, high, scale = frame
    for begin, end in spans:
        begin, end = max(begin, low), min(end, high)
        if end > begin:
            title = f"{lane}, {duration(end - begin)} from {duration(begin - low)}"
            place = LEFT + (begin - low) * scale, top
            yield bar(title, place, ((end - begin) * scale, LANE - 1), LANES[lane])
