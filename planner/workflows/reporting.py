"""The workflow of `planner report`: a page of a plan, of a trace, of a recording, or of a ledger."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner import files, pipeline
from planner.errors import InputError
from planner.ledger import drift_by_plan, measured_steps_of_plan, read_entries
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.report import (
    Page,
    PageStep,
    ReplayFindings,
    ledger_page,
    plan_page,
    recorded_step,
    replay_page,
    runs_page,
    timeline_page,
)
from planner.simulate import read_steps
from planner.why import WhyPlan
from planner.workflows import evidence
from planner.workflows.replaying import replay_traces

TRACE_HEAD = 1 << 16  # bytes at the start of a trace that distinguish planner's own from a recording
TRACE_FORMAT = b"planner.trace/"
SNIFFED_BYTES = 1 << 10  # bytes at the start of a file that distinguish a plan from a trace


@dataclass(frozen=True, slots=True)
class PageExtras:
    """What a page of a plan shows in addition."""

    measured: Path | None = None  # a trace that `run --trace` wrote
    why: bool = False  # what more memory, ranks or bandwidth would save; solves several times


def build_page(path: Path, extra: PageExtras | None = None) -> Page:
    """Build the page of a plan, trace, folder of records or ledger. Raises InputError and Infeasible."""
    extra = extra or PageExtras()
    if is_plan(path):
        return page_of_plan(path, extra)
    if extra.measured or extra.why:
        where = "--measured" if extra.measured else "--why"
        raise InputError("this option is for plans", where=where, fix=f"leave it out, or give a plan instead of {path}")
    if os.path.isdir(path):
        return page_of_folder(path)
    return page_of_runs(path) if path.suffix == ".jsonl" else page_of_trace(path)


def write_page(path: Path, target: Path, extra: PageExtras | None = None) -> dict[str, Any]:
    """Write the page to `target` atomically; return a summary for JSON. Raises InputError and Infeasible."""
    page = build_page(path, extra)
    text = page.html()
    files.write_text(target, text)
    return {"report": str(target), "bytes": len(text.encode()), **page.summary}


def is_plan(path: Path) -> bool:
    """Whether a path is a plan: not a folder, a ledger of runs (.jsonl) or a trace. Raises InputError."""
    if os.path.isdir(path) or path.suffix == ".jsonl":
        return False
    return not files.read_head(path, SNIFFED_BYTES).lstrip().startswith((b"{", b"["))


def page_of_plan(path: Path, extra: PageExtras) -> Page:
    """The page of a plan, simulated."""
    plan, scores = pipeline.read_scored(path)
    measured = measured_steps(plan, extra.measured) if extra.measured else []
    found = pipeline.why(plan) if extra.why else None
    return plan_page(plan, scores, measured, found if isinstance(found, WhyPlan) else None)


def measured_steps(plan: Plan, path: Path) -> list[tuple[int, PageStep]]:
    """Steps that a run of the plan measured, each with its number in the plan. Raises InputError."""
    tasks = [expand(plan, number) for number in range(len(plan.steps))]
    steps = measured_steps_of_plan(path, tasks, plan.name, plan.size)
    runs = ["" if len(steps) == 1 or step.run_step is None else f" {step.run_step}" for step in steps]
    return [(step.step, recorded_step(f"{step.label}{run}", step)) for step, run in zip(steps, runs, strict=True)]


def page_of_trace(path: Path) -> Page:
    """The timelines of a trace that planner wrote, or the replay of one that torch.profiler recorded."""
    head = files.read_head(path, TRACE_HEAD)
    if b'"traceEvents"' in head and TRACE_FORMAT not in head:
        return page_of_recording(path)
    steps = read_steps(path)
    shown = [
        recorded_step(f"step {at if step.run_step is None else step.run_step}", step) for at, step in enumerate(steps)
    ]
    return timeline_page(steps[0].plan or path.name, shown)


def page_of_recording(path: Path) -> Page:
    """Traces of torch.profiler, one or a folder with one of each rank, replayed."""
    found = replay_traces([path])
    findings = ReplayFindings(
        found.replay, found.verdict, found.critical_path, found.operators, found.stragglers, found.notes
    )
    return replay_page(path.name or str(path), findings)


def page_of_folder(path: Path) -> Page:
    """Published records of a folder, predicted and measured; or a folder of recorded traces."""
    if not any(path.rglob("*.csv")) and any(path.rglob("*.json*")):
        return page_of_recording(path)
    return ledger_page(evidence.published_account(path), path.name or str(path))


def page_of_runs(path: Path) -> Page:
    """The user's ledger of runs."""
    if not os.path.isfile(path):
        raise InputError("there is no such file", where=str(path), fix="check the path")
    entries, unread = read_entries(path)
    return runs_page(drift_by_plan(entries), unread, path.name)
