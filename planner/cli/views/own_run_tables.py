"""The user's own runs, predicted and measured, as tables and as JSON; and adding a run to their ledger."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.render import console
from planner.cli.views.plain_table import table
from planner.errors import InputError
from planner.ledger import ComparedRun, RunDrift, RunEntry, UnreadLine
from planner.report import LAST_RUN_HEADS, RUN_HEADS, last_run_cells, run_cells
from planner.workflows import evidence

VERDICTS = {"drifted": "bold yellow", "missed": "yellow", "as predicted": "green"}


def drift_tables(
    drifted: Sequence[RunDrift], unread: Sequence[UnreadLine], path: Path, with_runs: bool
) -> Iterator[RenderableType]:
    """Tables of the last run of every plan and machine, compared with the runs before."""
    if drifted:
        yield from (runs_table(one) for one in drifted if with_runs)
        yield drift_table(drifted)
        yield Text("\nratio: measured / predicted; before: its median over the earlier runs", style="dim")
    else:
        yield Text(f"no runs in {path} yet", style="bold")
        yield Text(
            "`planner run PLAN` adds one each time; `planner ledger FOLDER` reads published records", style="dim"
        )
    for line in unread:
        yield Text(f"{path}:{line.line} is not a run: {line.why}", style="yellow")


def drift_table(drifted: Sequence[RunDrift]) -> RenderableType:
    rows = table("plan, machine", *LAST_RUN_HEADS, "", title="last runs")
    for column in rows.columns[1:]:
        column.no_wrap = True
    for one in drifted:
        name = Text.assemble((one.plan, "bold"), (f"\n{one.machine}", "dim"))
        rows.add_row(name, *last_run_cells(one), Text(one.verdict, style=VERDICTS[one.verdict]))
    return rows


def runs_table(one: RunDrift) -> RenderableType:
    rows = table(*RUN_HEADS, title=f"{one.plan} on {one.machine}")
    for entry in one.runs:
        rows.add_row(*run_cells(entry))
    return rows


def summary(drifts: Sequence[RunDrift], unread: Sequence[UnreadLine], path: Path, with_runs: bool) -> dict[str, Any]:
    """The JSON answer of `planner ledger` about the user's own runs."""
    return {
        "ledger": str(path),
        "drift": [drift_answer(one, with_runs) for one in drifts],
        "unread": [{"line": line.line, "why": line.why} for line in unread],
    }


def drift_answer(one: RunDrift, with_runs: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "plan": one.plan,
        "machine": one.machine,
        "runs": len(one.runs),
        "last": entry_answer(one.last_run),
        "before": one.earlier_ratio,
        "drifted": one.drifted,
        "missed": one.missed,
    }
    return {**answer, "entries": [entry_answer(entry) for entry in one.runs]} if with_runs else answer


def entry_answer(entry: RunEntry) -> dict[str, Any]:
    return {**asdict(entry), "ratio": entry.ratio}


def add_to_ledger(ran: ComparedRun) -> None:
    """Append a run to the user's ledger; a failure only prints a warning."""
    try:
        evidence.record_run(ran)
    except InputError as error:
        where = f" ({error.where})" if error.where else ""
        console(stderr=True).print(
            Text(f"this run was not added to the ledger: {error.message}{where}", style="yellow")
        )
