"""Checks a folder of cases: each a folder with `plan.yaml`, and the `job.yaml` it solves unless it was written by hand.

A case with a job is solved again, with the options that its plan names, and both plans are compared. A plan by hand is
only checked for legality and re-priced. A stored plan blocks that cannot be read, is illegal, or states what its own
numbers deny; so does a job that can no longer be solved.
"""

import os
from collections.abc import Callable
from pathlib import Path

from planner import files
from planner.check.checked_plan import CheckedPlan, check_plan, violation_findings
from planner.check.compare import differences
from planner.check.finding import Category, Finding, Tolerances
from planner.errors import InputError, PlannerError
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields

JOB, PLAN = "job.yaml", "plan.yaml"

ResolveJob = Callable[[Path, Plan], Plan]  # solves a job file again, with the stored plan's options
OnCase = Callable[[int, int, str], None]  # cases done, of how many, the current one


def check_folder(root: Path, resolve: ResolveJob, tolerances: Tolerances, on_case: OnCase) -> list[Finding]:
    """Findings of all cases, each `where` prefixed with its case. Raises InputError when there is nothing to check."""
    cases = find_cases(root)
    found: list[Finding] = []
    for number, folder in enumerate(cases):
        name = folder.relative_to(root).as_posix() if folder != root else root.resolve().name
        on_case(number, len(cases), name)
        found += [with_fields(f, where=f"{name}: {f.where}") for f in check_case(folder, resolve, tolerances)]
    on_case(len(cases), len(cases), "")
    return found


def find_cases(root: Path) -> list[Path]:
    """Folders at any depth that hold a stored plan, sorted by name. Raises InputError."""
    if not os.path.isdir(root):
        raise InputError("there is no such folder", where=str(root), fix="name a folder of cases, or two plans")
    folders = sorted({path.parent for name in (JOB, PLAN) for path in root.rglob(name) if not hidden(path, root)})
    if not folders:
        raise InputError(
            "the folder holds no case", where=str(root), fix=f"put {JOB} and {PLAN} into a folder for each case"
        )
    for folder in folders:
        if not (folder / PLAN).is_file():
            raise InputError(
                "this case has a job and no plan to compare with",
                where=str(folder),
                fix=f"planner solve {folder / JOB} -o {folder / PLAN}",
            )
    return folders


def hidden(path: Path, root: Path) -> bool:
    """Whether a path is inside a folder such as `.git` or `.venv`."""
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def check_case(folder: Path, resolve: ResolveJob, tolerances: Tolerances) -> list[Finding]:
    """Check the stored plan of a case, solve its job again, compare both."""
    try:
        stored = check_plan(files.read(folder / PLAN, Plan))
    except InputError as error:
        return [failure("illegal", error, PLAN, "the stored plan cannot be read")]
    if stored.violations or stored.false or not (folder / JOB).is_file():
        return violation_findings(stored, "illegal", "stored")
    return compare_resolved(stored, folder / JOB, resolve, tolerances)


def compare_resolved(stored: CheckedPlan, job: Path, resolve: ResolveJob, tolerances: Tolerances) -> list[Finding]:
    """Compare the stored plan with a new one. A job that can no longer be solved is a regression."""
    try:
        resolved = resolve(job, stored.plan)
    except PlannerError as error:
        return [failure("regression", error, JOB, "the job can no longer be solved")]
    return differences(stored, check_plan(resolved), tolerances)


def failure(category: Category, error: PlannerError, name: str, what: str) -> Finding:
    fix = f"; fix: {error.fix}" if error.fix else ""
    return Finding(category, error.where or name, None, None, f"{what}: {error.message}{fix}")
