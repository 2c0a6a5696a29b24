"""What `planner replay` answers with, for programs and for people."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.cli.tables import table
from planner.replay import Link
from planner.replay.replayed import middle_error, worst_error
from planner.replaying import Answer
from planner.units import duration, percent

SHOWN = 12  # rows of a table for people
LONGEST = 60  # characters of a name for people
LINKS = 10_000  # of the critical path for programs: the longest


def summary(answer: Answer) -> dict[str, Any]:
    """For programs."""
    made = answer.replay
    return {
        "steps": [
            {
                "rank": step.rank,
                "name": step.name,
                "measured_seconds": step.measured,
                "replayed_seconds": step.replayed,
                "error": step.error,
                "explained_seconds": explained.replayed,
                "explained_error": explained.error,
            }
            for step, explained in zip(made.steps, answer.explained, strict=True)
        ],
        "measured_step_seconds": made.measured_step_seconds,
        "replayed_step_seconds": made.step_seconds,
        "median_error": made.median_error,
        "worst_error": made.worst_error,
        "explained_median_error": middle_error(answer.explained),
        "explained_worst_error": worst_error(answer.explained),
        "copied": copied_of(answer),
        "breakdown": breakdown_of(answer, 0),
        "critical_path": [link_of(link) for link in longest(answer.path)],
        "critical_path_left_out": max(0, len(answer.path) - LINKS),
        "operators": [row._asdict() for row in answer.operators],
        "ranks": ranks(answer),
        "stragglers": [{**each._asdict(), "slower": dict(each.slower)} for each in answer.stragglers],
        "streams": [each._asdict() for each in made.busy()],
        "whatif": whatif(answer),
        "notes": answer.notes,
    }


def copied_of(answer: Answer) -> dict[str, Any]:
    """What is replayed as it was, since nothing found accounts for it."""
    copied = answer.replay.copied
    return {
        "host_seconds": copied.host,
        "device_gap_seconds": copied.gaps,
        "unseen_seconds": copied.unseen,
        "operations_with_launch": copied.launched,
        "operations": copied.operations,
    }


def longest(path: Sequence[Link]) -> list[Link]:
    """Of a path of very many stretches the longest, in their order."""
    kept = sorted(sorted(range(len(path)), key=lambda i: (-path[i].seconds, i))[:LINKS])
    return [path[i] for i in kept]


def breakdown_of(answer: Answer, graph: int) -> dict[str, Any]:
    found = answer.replay.breakdown(graph)
    return {**found.parts._asdict(), "kinds": found.kinds}


def link_of(link: Link) -> dict[str, Any]:
    return {
        "rank": link.rank,
        "where": link.where,
        "kind": link.kind,
        "name": link.name,
        "annotations": link.within.annotations,
        "operators": link.within.operators,
        "start": link.start,
        "seconds": link.seconds,
    }


def ranks(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "rank": graph.trace.rank,
            "source": graph.trace.source,
            "device": graph.trace.device,
            "versions": graph.trace.versions,
            "dependencies": graph.found,
            "breakdown": breakdown_of(answer, g),
        }
        for g, graph in enumerate(answer.replay.graphs)
    ]


def whatif(answer: Answer) -> dict[str, Any] | None:
    found = answer.predicted
    if found is None:
        return None
    assumed = [{"change": said, "assumed": what} for said, what in found.assumed]
    return {
        "step_seconds": found.step_seconds,
        "replayed_seconds": found.replayed_seconds,
        "speedup": found.speedup,
        "assumed": assumed,
    }


def pictures(answer: Answer, trace: Path | None) -> RenderableType:
    """For people."""
    return Stack(*lines(answer, trace))


def lines(answer: Answer, trace: Path | None) -> Iterator[RenderableType]:
    made, copied = answer.replay, answer.replay.copied
    yield steps(answer)
    yield Text.assemble(
        "\nmedian error ",
        (percent(made.median_error), "bold"),
        f", worst {percent(made.worst_error)}; explained: without {duration(copied.unseen)} of waits that the "
        f"trace shows and nothing found in it explains, median error {percent(middle_error(answer.explained))}, "
        f"worst {percent(worst_error(answer.explained))}",
    )
    yield Text(
        f"copied from the trace: {duration(copied.host)} of host threads, {duration(copied.gaps)} of gaps between "
        f"operations; {copied.launched:,} of {copied.operations:,} operations have a launch. A wait that was not found "
        "is in there; what rests on those that were found is what `--without` them is lost",
        style="dim",
    )
    yield from (Text(), parts(answer), Text(), path(answer))
    if answer.stragglers:
        yield from (Text(), stragglers(answer))
    if answer.predicted:
        yield from predicted(answer)
    for note in answer.notes:
        yield plain(f"note: {note}", "dim")
    if trace:
        yield plain(f"trace written to {trace}: open it at ui.perfetto.dev", "dim")


def steps(answer: Answer) -> RenderableType:
    columns = (">measured", ">replayed", ">error", ">explained")
    rows = table("rank", "step", *columns, title="steps: measured beside replayed")
    for step, explained in zip(answer.replay.steps, answer.explained, strict=True):
        times = (duration(step.measured), duration(step.replayed), percent(step.error), duration(explained.replayed))
        rows.add_row(str(step.rank), plain(step.name), *times)
    return rows


def parts(answer: Answer) -> RenderableType:
    """Where the mean step goes, a row a rank, then its kinds of work."""
    columns = (">compute", ">overlapped", ">exposed comm", ">copies", ">idle")
    rows = table("rank", *columns, "most of it", title="where a step's time goes on the device, as replayed")
    for g, graph in enumerate(answer.replay.graphs):
        found = answer.replay.breakdown(g)
        total = sum(found.parts) or 1.0
        kinds = ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in [*found.kinds.items()][:4])
        rows.add_row(str(graph.trace.rank), *(percent(seconds / total) for seconds in found.parts), kinds)
    return rows


def path(answer: Answer) -> RenderableType:
    total = sum(link.seconds for link in answer.path) or 1.0
    title = f"the critical path through all steps, {duration(total)} replayed, by operator"
    rows = table("operator", "kind", ">seconds", ">share", ">times", title=title)
    for row in answer.operators[:SHOWN]:
        rows.add_row(
            plain(short(row.operator)), row.kind, duration(row.seconds), percent(row.seconds / total), str(row.times)
        )
    return rows


def stragglers(answer: Answer) -> RenderableType:
    columns = (">last to come", ">others waited", "own work slower than the median rank's")
    rows = table("rank", *columns, title="who keeps the others waiting, measured")
    for each in answer.stragglers:
        slower = ", ".join(f"{kind} +{duration(seconds)}" for kind, seconds in each.slower)
        rows.add_row(str(each.rank), f"{each.last} of {each.of}", duration(each.kept_waiting), slower)
    return rows


def predicted(answer: Answer) -> Iterator[RenderableType]:
    found = answer.predicted
    if found is None:
        return
    yield Text.assemble(
        "\nwhat if: step ",
        (duration(found.step_seconds), "bold"),
        f" simulated, {duration(found.replayed_seconds)} replayed without the changes ({found.speedup:.2f} ×)",
    )
    for said, assumed in found.assumed:
        yield plain(f"  {said}: {assumed}", "dim")


def plain(name: str, style: str = "") -> Text:
    """What a trace or a path says, for a terminal: no markup, and none of what would steer the terminal."""
    return Text("".join(c if c.isprintable() else "\ufffd" for c in name), style=style)


def short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
