"""Compares a measured step with its simulation: the difference by kind of work, by task and by rank."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from planner.cli.views.json_answers import slow_rank_answer
from planner.cli.views.plain_table import table
from planner.ledger import DifferenceLine, StepDifference, StepOverlay
from planner.units import duration, percent, signed

TASKS_SHOWN = 8
MISSING_SHOWN = 4
ID_COLUMNS = 28
ROUND = 1e-9  # seconds: below the rounding of the trace
METHOD = "time along the measured critical path"


def difference_tables(overlays: Sequence[StepOverlay]) -> Iterator[RenderableType]:
    """Tables of each measured step."""
    for overlay in overlays:
        yield Stack(step_line(overlay), kind_table(overlay.explained), task_table(overlay.explained), *remarks(overlay))


def step_line(overlay: StepOverlay) -> Text:
    explained, run_step = overlay.explained, overlay.recorded.run_step
    which = "" if run_step is None else f"step {run_step} of the run"
    of = f"{which}, the median of {overlay.measured_count}" if overlay.measured_count > 1 else which
    part = explained.difference / explained.simulated if explained.simulated else 0.0
    share = f", {'+' if part >= 0 else '−'}{percent(abs(part))}" if explained.simulated else ""
    return Text.assemble(
        f"\nstep {overlay.step}: ",
        (duration(explained.simulated), "bold"),
        " simulated, ",
        (duration(explained.measured), "bold"),
        f" measured ({of}): ",
        (f"{signed(explained.difference)}{share}", "bold"),
    )


def kind_table(explained: StepDifference) -> Table:
    rows = table("kind of work", ">simulated", ">measured", ">difference", title=f"\n{METHOD}")
    for line in explained.by_kind():
        rows.add_row(*cells(line))
    rows.add_row(*cells(DifferenceLine("step", explained.simulated, explained.measured)), style="bold")
    return rows


def task_table(explained: StepDifference) -> Table:
    """Tasks that differ most, and the sum of the others: together they add up to the difference."""
    rows = table(
        "task", ">simulated", ">measured", ">difference", "mostly", title="\ntasks that explain the difference"
    )
    lines = [line for line in explained.by_task() if abs(line.difference) > ROUND]
    for line in lines[:TASKS_SHOWN]:
        _, *seconds = cells(line)
        rows.add_row(folded(line.name), *seconds, main_reason(explained, line.name))
    rows.columns[0].no_wrap = True  # ids are for searching: the rest of the line is for text
    rest = lines[TASKS_SHOWN:]
    if rest:
        sums = DifferenceLine(
            f"{len(rest)} more", sum(line.simulated for line in rest), sum(line.measured for line in rest)
        )
        rows.add_row(*cells(sums), style="dim")
    return rows


def cells(line: DifferenceLine) -> tuple[str, str, str, str]:
    return line.name, duration(line.simulated), duration(line.measured), signed(line.difference)


def folded(id: str) -> str:
    """A task's id; a long one is broken into lines after its slashes."""
    lines = [""]
    for piece in re.findall(r"[^/]*/|[^/]+", id):
        if lines[-1] and len(lines[-1] + piece) > ID_COLUMNS:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def main_reason(explained: StepDifference, id: str) -> str:
    """Which part of a task differs most (work, wait or start), and on which rank."""
    pieces = [piece for piece in explained.path if piece.id == id]
    if not pieces:
        return ""
    parts = [sum(piece.difference[at] for piece in pieces) for at in range(3)]
    at = max(range(3), key=lambda part: abs(parts[part]))
    longer = parts[at] > 0
    what = (
        "slower" if longer else "faster",
        "waits longer for its group" if longer else "waits less for its group",
        "starts later after the task before" if longer else "starts sooner after the task before",
    )[at]
    return f"{what}, rank {pieces[0].rank}"


def remarks(overlay: StepOverlay) -> Iterator[Text]:
    """Ranks on the critical path, slow ranks, and tasks that were not measured."""
    by_rank = sorted(overlay.explained.by_rank(), key=lambda line: (-abs(line.difference), int(line.name)))
    if len(by_rank) > 1:
        listed = ", ".join(f"{line.name} {signed(line.difference)}" for line in by_rank[:TASKS_SHOWN])
        more = f", and {len(by_rank) - TASKS_SHOWN} more" if len(by_rank) > TASKS_SHOWN else ""
        yield Text(f"\nby rank on the critical path: {listed}{more}", style="dim")
    for slow in overlay.slow[:TASKS_SHOWN]:
        yield Text(f"\n{slow.text}", style="yellow")
    missing = overlay.explained.unmeasured_tasks
    if missing:
        listed = ", ".join(missing[:MISSING_SHOWN]) + (" …" if len(missing) > MISSING_SHOWN else "")
        of = len(overlay.tasks)
        yield Text(f"\n{len(missing)} of {of} tasks were not measured: {listed}", style="yellow")


# ------------------------------------------------------------------------------------------------------------ programs


def summary(overlays: Sequence[StepOverlay]) -> dict[str, Any]:
    """The JSON answer; its keys are promises to scripts."""
    return {"measured": [step_summary(overlay) for overlay in overlays]}


def step_summary(overlay: StepOverlay) -> dict[str, Any]:
    explained = overlay.explained
    return {
        "step": overlay.step,
        "run_step": overlay.recorded.run_step,
        "steps_measured": overlay.measured_count,
        "simulated_seconds": explained.simulated,
        "measured_seconds": explained.measured,
        "difference_seconds": explained.difference,
        "kinds": [line_summary(line, "kind") for line in explained.by_kind()],
        "ranks": [{**line_summary(line, "rank"), "rank": int(line.name)} for line in explained.by_rank()],
        "tasks": [
            {**line_summary(line, "task"), "because": main_reason(explained, line.name)} for line in explained.by_task()
        ],
        "path": [
            {
                "task": piece.id,
                "rank": piece.rank,
                "simulated": dict(zip(("work", "exchange", "wait"), piece.simulated, strict=True)),
                "measured": dict(zip(("work", "exchange", "wait"), piece.measured, strict=True)),
            }
            for piece in explained.path
        ],
        "slow_ranks": [slow_rank_answer(one) for one in overlay.slow],
        "missing": [*explained.unmeasured_tasks],
    }


def line_summary(line: DifferenceLine, key: str) -> dict[str, Any]:
    return {
        key: line.name,
        "simulated": line.simulated,
        "measured": line.measured,
        "difference": line.difference,
    }
