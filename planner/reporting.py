"""A page of whatever there is: a plan, a trace of planner's own, a ledger of published rows or of runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner import files, pipeline
from planner.errors import InputError
from planner.ledger import own
from planner.ledger.drift import drift
from planner.ledger.published import account_of_folder
from planner.plan.expand import expand
from planner.plan.model import Plan
from planner.report import Page, Shown, Why, ledger_page, plan_page, recorded, runs_page, timeline_page
from planner.simulate.recorded import Recorded, read_steps

GZIPPED = b"\x1f\x8b"
BEGINNING = 1 << 10  # bytes that tell a plan from a trace
OTHER = "give a trace of a run of this plan"


@dataclass(frozen=True, slots=True)
class With:
    """What a page of a plan shows besides."""

    measured: Path | None = None  # a trace that `run --trace` wrote
    why: bool = False  # what more memory, ranks or bandwidth would save: solves several times


def report(path: Path, extra: With | None = None) -> Page:
    """The page of what `path` is. Raises InputError and Infeasible."""
    extra = extra or With()
    if is_plan(path):
        return of_plan(path, extra)
    if extra.measured or extra.why:
        where = "--measured" if extra.measured else "--why"
        raise InputError("this is of plans", where=where, fix=f"leave it out, or give a plan instead of {path}")
    if path.is_dir():
        return of_folder(path)
    return of_runs(path) if path.suffix == ".jsonl" else of_trace(path)


def write(path: Path, target: Path, extra: With | None = None) -> dict[str, Any]:
    """The page into `target`, whole or not at all; what was written. Raises InputError and Infeasible."""
    page = report(path, extra)
    text = page.html()
    files.write_text(target, text)
    return {"report": str(target), "bytes": len(text.encode()), **page.summary}


def is_plan(path: Path) -> bool:
    """Neither a folder, nor lines of runs, nor a trace."""
    if path.is_dir() or path.suffix == ".jsonl":
        return False
    try:
        with path.open("rb") as handle:
            start = handle.read(BEGINNING)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=str(path), fix="check the path") from error
    return not start.startswith(GZIPPED) and not start.lstrip().startswith((b"{", b"["))


def of_plan(path: Path, extra: With) -> Page:
    plan = pipeline.read_plan(path)
    measured = measured_steps(plan, extra.measured) if extra.measured else []
    found = pipeline.why(plan) if extra.why else None
    return plan_page(plan, pipeline.simulate(plan), measured, found if isinstance(found, Why) else None)


def measured_steps(plan: Plan, path: Path) -> list[tuple[int, Shown]]:
    """Steps of a trace, each with which of the plan's it is. Raises InputError when it is of another plan."""
    steps = read_steps(path)
    if max(step.step for step in steps) >= len(plan.steps):
        what = f"step {max(step.step for step in steps)}"
        raise InputError(f"the trace has {what}, which the plan has not", where=str(path), fix=OTHER)
    tasks = {number: {task.id for task in expand(plan, number)} for number in {step.step for step in steps}}
    for step in steps:
        require_same(step, plan, tasks[step.step], str(path))
    shown = ((step.label, "" if len(steps) == 1 or step.run_step is None else f" {step.run_step}") for step in steps)
    return [(step.step, recorded("".join(title), step)) for step, title in zip(steps, shown, strict=True)]


def require_same(step: Recorded, plan: Plan, tasks: set[str], where: str) -> None:
    """Raises InputError when a step is of other tasks or ranks than the plan's."""
    strangers = [event.id for event in step.timeline.events if event.id not in tasks]
    if strangers or step.timeline.ranks != plan.size:
        what = f"{step.timeline.ranks} ranks" if step.timeline.ranks != plan.size else f"task {strangers[0]}"
        raise InputError(f"the trace has {what}, which the plan has not", where=where, fix=OTHER)


def of_trace(path: Path) -> Page:
    steps = read_steps(path)
    shown = [recorded(f"step {at if step.run_step is None else step.run_step}", step) for at, step in enumerate(steps)]
    return timeline_page(steps[0].plan or path.name, shown)


def of_folder(path: Path) -> Page:
    from planner.published.predict import predict

    return ledger_page(account_of_folder(path, (), predict), path.name or str(path))


def of_runs(path: Path) -> Page:
    if not path.is_file():
        raise InputError("there is no such file", where=str(path), fix="check the path")
    entries, unread = own.read(path)
    return runs_page(drift(entries), unread, path.name)
