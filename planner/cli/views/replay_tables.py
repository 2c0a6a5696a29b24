"""What `planner replay` prints, and its JSON answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.printable import one_line
from planner.replay import PathLink
from planner.replay.timing import ReplayComparison, Straggler, median_step_error, worst_step_error
from planner.units import US, duration, percent, signed
from planner.workflows.replaying import ReplayAnswer

HARDLY = 0.01  # share of the measured time below which others hardly wait for a rank
SHOWN = 12  # rows of a printed table
LONGEST = 60  # characters of a printed name
KERNEL_HARDLY = 1 * US  # of a step, below which a kernel is not counted as changed
KERNELS_SHOWN = 15  # kernels in the printed table
PART_NAMES = {
    "compute": "compute",
    "overlapped": "overlapped",
    "exposed_communication": "exposed communication",
    "copies": "copies",
    "idle": "idle",
}
COPIED = ("host_seconds", "device_gap_seconds", "unseen_seconds", "operations_with_launch", "operations")
LINKS = 10_000  # of the critical path in the JSON answer: the longest


def summary(answer: ReplayAnswer) -> dict[str, Any]:
    """The JSON answer of `planner replay`."""
    replayed, path = answer.replay, answer.critical_path
    longest = sorted(sorted(range(len(path)), key=lambda i: (-path[i].seconds, i))[:LINKS])
    return {
        "verdict": answer.verdict._asdict(),
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
            for step, explained in zip(replayed.steps, answer.explained, strict=True)
        ],
        "measured_step_seconds": replayed.measured_step_seconds,
        "replayed_step_seconds": replayed.step_seconds,
        "median_error": replayed.median_error,
        "worst_error": replayed.worst_error,
        "explained_median_error": median_step_error(answer.explained),
        "explained_worst_error": worst_step_error(answer.explained),
        "copied": dict(zip(COPIED, replayed.copied, strict=True)),
        "breakdown": breakdown_answer(answer, 0),
        "critical_path": [link_answer(path[i]) for i in longest],
        "critical_path_left_out": max(0, len(answer.critical_path) - LINKS),
        "operators": [operator._asdict() for operator in answer.operators],
        "ranks": rank_answers(answer),
        "stragglers": [straggler_answer(each) for each in answer.stragglers],
        "clocks": [
            {"rank": graph.trace.rank, **clock._asdict()}
            for graph, clock in zip(replayed.graphs, replayed.matched.clocks, strict=False)
        ],
        "streams": [each._asdict() for each in replayed.stream_seconds()],
        "whatif": whatif_answer(answer),
        "notes": answer.notes,
    }


def straggler_answer(late: Straggler) -> dict[str, Any]:
    cause = late.cause and {**late.cause._asdict(), "text": late.cause.text}
    return {**late._asdict(), "cause": cause, "slower": dict(late.slower)}


def breakdown_answer(answer: ReplayAnswer, graph: int) -> dict[str, Any]:
    breakdown = answer.replay.breakdown(graph)
    return {**breakdown.parts._asdict(), "kinds": breakdown.kinds}


def link_answer(link: PathLink) -> dict[str, Any]:
    return {
        "rank": link.rank,
        "where": link.lane,
        "kind": link.kind,
        "name": link.name,
        "annotations": link.enclosing.annotations,
        "operators": link.enclosing.operators,
        "start": link.start,
        "seconds": link.seconds,
    }


def rank_answers(answer: ReplayAnswer) -> list[dict[str, Any]]:
    return [
        {
            "rank": graph.trace.rank,
            "source": graph.trace.source,
            "device": graph.trace.device,
            "versions": graph.trace.versions,
            "dependencies": graph.dependency_counts,
            "breakdown": breakdown_answer(answer, g),
        }
        for g, graph in enumerate(answer.replay.graphs)
    ]


def whatif_answer(answer: ReplayAnswer) -> dict[str, Any] | None:
    predicted = answer.predicted
    if predicted is None:
        return None
    assumed = [{"change": change, "assumed": assumption} for change, assumption in predicted.assumed]
    return {
        "step_seconds": predicted.step_seconds,
        "replayed_seconds": predicted.replayed_seconds,
        "speedup": predicted.speedup,
        "assumed": assumed,
    }


def replay_lines(answer: ReplayAnswer, trace: Path | None) -> Iterator[RenderableType]:
    """Steps, breakdown, critical path, stragglers and what-ifs, as `planner replay` prints them."""
    yield from verdict_lines(answer)
    if answer.stragglers:
        yield from (slowest_rank(answer), Text(), stragglers(answer), Text())
    if answer.replay.matched.clocks:
        yield from (clock_table(answer), Text())
    yield step_table(answer)
    copied = answer.replay.copied
    yield Text(
        f"copied from the trace: {duration(copied.host)} of host threads, {duration(copied.gaps)} of gaps between "
        f"operations; {copied.launched:,} of {copied.operations:,} operations have a launch. The error of a replayed "
        "step shows a dependency that was inferred wrongly, none that is missing; `--without` a kind shows what that "
        "kind explains",
        style="dim",
    )
    yield from (Text(), breakdown_table(answer), Text(), critical_path_table(answer))
    if answer.predicted:
        yield from whatif_lines(answer)
    for note in answer.notes:
        yield plain(f"note: {note}", "dim")
    if trace:
        yield plain(f"trace written to {trace}: open it at ui.perfetto.dev", "dim")


def step_table(answer: ReplayAnswer) -> RenderableType:
    columns = (">measured", ">replayed", ">error", ">explained")
    rows = table("rank", "step", *columns, title="steps, measured and replayed")
    for step, explained in zip(answer.replay.steps, answer.explained, strict=True):
        times = (duration(step.measured), duration(step.replayed), percent(step.error), duration(explained.replayed))
        rows.add_row(str(step.rank), plain(step.name), *times)
    return rows


def breakdown_table(answer: ReplayAnswer) -> RenderableType:
    """Where the time of the mean step goes, a row per rank, with the largest kinds of work."""
    columns = (">compute", ">overlapped", ">exposed comm", ">copies", ">idle")
    rows = table("rank", *columns, "mostly", title="where a step's time goes on the device, replayed")
    for g, graph in enumerate(answer.replay.graphs):
        breakdown = answer.replay.breakdown(g)
        total = sum(breakdown.parts) or 1.0
        kinds = ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in [*breakdown.kinds.items()][:4])
        rows.add_row(str(graph.trace.rank), *(percent(seconds / total) for seconds in breakdown.parts), kinds)
    return rows


def critical_path_table(answer: ReplayAnswer) -> RenderableType:
    total = sum(link.seconds for link in answer.critical_path) or 1.0
    title = f"the critical path through all steps, {duration(total)} replayed, by operator"
    rows = table("operator", "kind", ">seconds", ">share", ">count", title=title)
    for operator in answer.operators[:SHOWN]:
        rows.add_row(
            plain(short(operator.operator)),
            operator.kind,
            duration(operator.seconds),
            percent(operator.seconds / total),
            str(operator.times),
        )
    return rows


def verdict_lines(answer: ReplayAnswer) -> Iterator[RenderableType]:
    """What the steps are bound by, and how much of them the trace explains."""
    verdict = answer.verdict
    others = ", ".join(
        f"{bound} {percent(share)}"
        for bound, share in verdict.shares.items()
        if bound != verdict.bound and share >= 0.001
    )
    ahead = f"; the host runs {duration(verdict.host_ahead)} ahead" if verdict.host_ahead > 0 else ""
    share = f" takes {percent(verdict.shares[verdict.bound])} of the critical path"
    named, _, what = verdict.text.partition(":")
    what = f":{what}" if what else what
    yield Text.assemble((named, "bold"), f"{what}{share}{f' ({others})' if others else ''}{ahead}")
    parts = {
        "by what the trace shows": verdict.explained - verdict.hidden,
        "by work within launched graphs that it does not show": verdict.hidden,
        "not: waits and gaps, which a replay copies": 1 - verdict.explained,
    }
    listed = ", ".join(f"{percent(share)} {what}" for what, share in parts.items() if share >= 0.0005)
    yield Text.assemble((f"{percent(verdict.explained)} of the steps explained", "bold"), f": {listed}")


def slowest_rank(answer: ReplayAnswer) -> Text:
    """Which rank makes the others slower, by how much, and why; or that none does."""
    first = answer.stragglers[0]
    measured = sum(step.measured for step in answer.replay.steps if step.rank == first.rank)
    waited = f"the others waited {duration(first.kept_waiting)} for it, at {first.last:,} of {first.of:,} collectives"
    if first.slow and first.cause:
        share = percent(first.delay / measured if measured else 0.0)
        more = f" (+{duration(first.cause.seconds)})" if first.cause.what else ""
        return Text.assemble(
            (f"rank {first.rank} is slow", "bold"),
            f": it makes the steps {share} longer; {waited}. ",
            first.cause.text,
            more,
        )
    most = max(answer.stragglers, key=lambda late: (late.kept_waiting, -late.rank))
    if most.kept_waiting < HARDLY * measured:
        return Text("no rank is slow: the others hardly wait for any")
    return Text(
        f"no rank is slow: rank {most.rank} came late ({duration(most.kept_waiting)}), but its steps take no longer "
        "than the others': by chance, or for what was before the recording"
    )


def stragglers(answer: ReplayAnswer) -> RenderableType:
    columns = (">last to arrive", ">others waited", ">delay", "own work slower than the other ranks'")
    rows = table("rank", *columns, title="ranks, those that delay the others first")
    for late in answer.stragglers[:SHOWN]:
        slower = ", ".join(f"{kind} +{duration(seconds)}" for kind, seconds in late.slower)
        times = (duration(late.kept_waiting), duration(late.delay))
        rows.add_row(str(late.rank), f"{late.last} of {late.of}", *times, slower)
    return rows


def clock_table(answer: ReplayAnswer) -> RenderableType:
    """Clocks of the ranks beside that of the first."""
    matched = answer.replay.matched
    title = f"clocks, fitted to collectives that end together to {duration(matched.residual)}"
    rows = table("rank", ">ahead", ">gains in a second", ">collectives", title=title)
    for graph, clock in [*zip(answer.replay.graphs, matched.clocks, strict=True)][:SHOWN]:
        times = [f"{'−' if value < 0 else ''}{duration(abs(value))}" for value in (clock.offset, clock.drift)]
        rows.add_row(str(graph.trace.rank), *times, f"{clock.collectives:,}")
    return rows


def whatif_lines(answer: ReplayAnswer) -> Iterator[RenderableType]:
    prediction = answer.predicted
    if prediction is None:
        return
    yield Text.assemble(
        "\nwhat if: step ",
        (duration(prediction.step_seconds), "bold"),
        f" simulated, {duration(prediction.replayed_seconds)} replayed unchanged ({prediction.speedup:.2f} ×)",
    )
    for change, assumed in prediction.assumed:
        yield plain(f"  {change}: {assumed}", "dim")


def plain(name: str, style: str = "") -> Text:
    """Text of a trace or path, safe to print: no markup, no control characters."""
    return Text(one_line(name), style=style)


def short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def comparison_answer(compared: ReplayComparison) -> dict[str, Any]:
    """The differences in seconds of the mean step."""
    return {
        "before": compared.before._asdict(),
        "after": compared.after._asdict(),
        "seconds": compared.seconds,
        "kernel_seconds": compared.kernel_seconds,
        "kernels": [{**each._asdict(), "seconds": each.seconds} for each in compared.kernels],
    }


def comparison_lines(compared: ReplayComparison) -> Iterator[RenderableType]:
    """Parts of the step and kernels that differ, both with their sums."""
    yield Text.assemble(
        ("against the earlier recording ", ""),
        (f"a step takes {signed(compared.seconds)}", "bold"),
        f": {duration(sum(compared.before))} before, {duration(sum(compared.after))} now",
    )
    parts = table("part", ">before", ">now", ">difference", title="the mean step of the mean rank")
    for name in compared.before._fields:
        was, now = getattr(compared.before, name), getattr(compared.after, name)
        parts.add_row(PART_NAMES[name], duration(was), duration(now), signed(now - was))
    yield parts
    counts = {
        change: sum(each.change == change for each in compared.kernels if abs(each.seconds) >= KERNEL_HARDLY)
        for change in ("changed", "came", "went")
    }
    listed = ", ".join(f"{count} {change}" for change, count in counts.items())
    title = f"kernels: {listed}; {signed(compared.kernel_seconds)}"
    kernels = table("kernel", "kind", "", ">before", ">now", ">difference", title=title)
    for each in compared.kernels[:KERNELS_SHOWN]:
        times = (duration(each.before), duration(each.after), signed(each.seconds))
        kernels.add_row(plain(short(each.name)), each.kind, each.change, *times)
    rest = compared.kernels[KERNELS_SHOWN:]
    if rest:
        before, after = sum(each.before for each in rest), sum(each.after for each in rest)
        kernels.add_row(f"{len(rest)} others", "", "", duration(before), duration(after), signed(after - before))
    yield from (kernels, Text())
