"""Checks a folder of cases: each a folder with `job.yaml` and the `plan.yaml` that it gave; `check.yaml` above them
says how much worse each may get.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from planner import files
from planner.check.actions_case import ACTIONS, actions_findings, decided_today, read_actions
from planner.check.case import JOB, PLAN, CheckedCase, Solving, check_case
from planner.check.finding import Finding, Tolerances, exit_code
from planner.check.loader_case import LOADER, divided_today, loader_findings
from planner.check.verdict_store import VerdictStore
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.solve_job import inputs_again, read_job
from planner.specs.base import with_fields
from planner.specs.check_file import CheckFile
from planner.specs.inputs import Inputs, JobOptions
from planner.specs.loader import LoaderFile

CHECK = "check.yaml"
NO_JOBS = "no case has a job, so that nothing is compared with what is solved today; --allow-unjudged lets it pass"

OnCase = Callable[[int, int, str], None]  # cases done, of how many, the current one


def check_folder(
    root: Path, solving: Solving, tolerances: Tolerances, on_case: OnCase, verdicts: Path | None = None
) -> list[CheckedCase]:
    """All cases, checked; `verdicts`: a folder that keeps those of cases in which nothing changes. Raises InputError
    where there is nothing to check.
    """
    cases, store = find_cases(root), VerdictStore(verdicts)
    limits = case_tolerances(root, [*cases], tolerances)
    checked = []
    for number, (name, folder) in enumerate(cases.items()):
        on_case(number, len(cases), name)
        if (folder / ACTIONS).is_file():
            checked.append(check_actions(name, folder / ACTIONS, limits[name]))
        if (folder / LOADER).is_file():
            path = folder / LOADER
            checked.append(CheckedCase(name, path, (*loader_findings(path, limits[name]),)))
        if (folder / PLAN).is_file():
            checked.append(check_case(name, folder, solving, limits[name], store))
    on_case(len(cases), len(cases), "")
    compared = any((folder / name).is_file() for folder in cases.values() for name in (JOB, ACTIONS, LOADER))
    if not (compared or tolerances.allow_unjudged or exit_code(all_findings(checked))):
        checked.append(CheckedCase("", root, (Finding("unjudged", str(root), None, None, NO_JOBS),)))
    return checked


def check_actions(name: str, path: Path, tolerances: Tolerances) -> CheckedCase:
    """Check the stored decisions about jobs on a cluster, and decide them again."""
    return CheckedCase(name, path, (*actions_findings(path, tolerances),))


def all_findings(cases: list[CheckedCase]) -> list[Finding]:
    """Findings of all cases, each `where` prefixed with its case."""
    return [
        with_fields(f, where=f"{case.name}: {f.where}" if case.name else f.where)
        for case in cases
        for f in case.findings
    ]


def update_folder(root: Path, solve: Callable[[Inputs], Plan], on_case: OnCase) -> list[Path]:
    """Solve every job of a folder, with the options of its plan where there is one, and write the plans that changed or
    are new: their files. Raises InputError and Infeasible.
    """
    written = []
    folders = {name: folder for name, folder in case_folders(root).items() if (folder / JOB).is_file()}
    for number, (name, folder) in enumerate(folders.items()):
        on_case(number, len(folders), name)
        path = folder / PLAN
        try:
            stored = files.read(path, Plan) if path.is_file() else None
        except InputError:  # what cannot be read is what an update replaces
            stored = None
        job = folder / JOB
        today = solve(inputs_again(job, stored) if stored else read_job(str(job), JobOptions()))
        if today != stored:
            files.write(path, today)
            written.append(path)
    on_case(len(folders), len(folders), "")
    return [*written, *update_actions(root), *update_loaders(root)]


def update_actions(root: Path) -> Iterator[Path]:
    """Decide all stored decisions of a folder again, and write those that changed. Raises InputError and Infeasible."""
    for folder in case_folders(root).values():
        path = folder / ACTIONS
        if path.is_file():
            stored = read_actions(path)
            today = decided_today(stored, folder)
            if today != stored:
                files.write(path, today)
                yield path


def update_loaders(root: Path) -> Iterator[Path]:
    """Divide the stored loaders of a folder again, and write those that changed. Raises InputError."""
    for folder in case_folders(root).values():
        path = folder / LOADER
        if path.is_file():
            stored = files.read(path, LoaderFile)
            if (today := divided_today(stored)) != stored:
                files.write(path, today)
                yield path


# ----------------------------------------------------------------------------------------------------- the folder


def find_cases(root: Path) -> dict[str, Path]:
    """Folders at any depth that hold a stored plan, by name. Raises InputError, also for a job without a plan."""
    folders = case_folders(root)
    for folder in folders.values():
        if not (folder / PLAN).is_file() and (folder / JOB).is_file():
            raise InputError(
                "this case has a job and no plan to compare with",
                where=str(folder),
                fix=f"planner solve {folder / JOB} -o {folder / PLAN}",
            )
    return folders


def case_folders(root: Path) -> dict[str, Path]:
    """Folders that hold a job or a plan, by name. Raises InputError where there are none."""
    if not os.path.isdir(root):
        raise InputError("there is no such folder", where=str(root), fix="name a folder of cases, or two plans")
    folders = sorted(
        {path.parent for name in (JOB, PLAN, ACTIONS, LOADER) for path in root.rglob(name) if not hidden(path, root)}
    )
    if not folders:
        raise InputError(
            "the folder holds no case",
            where=str(root),
            fix=f"put {JOB} and {PLAN}, {ACTIONS}, or {LOADER}, into a folder for each case",
        )
    return {
        folder.relative_to(root).as_posix() if folder != root else root.resolve().name: folder for folder in folders
    }


def hidden(path: Path, root: Path) -> bool:
    """Whether a path is inside a folder such as `.git` or `.venv`."""
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def case_tolerances(root: Path, names: list[str], given: Tolerances) -> dict[str, Tolerances]:
    """The tolerances of each case: those of `check.yaml` for it, else for all, else these. Raises InputError."""
    path = root / CHECK
    if not path.is_file():
        return dict.fromkeys(names, given)
    read = files.read(path, CheckFile)
    for name in read.cases:
        if name not in names:
            fix = files.nearest_word(name, names) or f"one of {', '.join(names)}"
            raise InputError(f"there is no case `{name}`", where=files.place(path, "cases", name), fix=fix)
    common = given.with_thresholds(read)
    return {name: common.with_thresholds(read.cases[name]) if name in read.cases else common for name in names}
