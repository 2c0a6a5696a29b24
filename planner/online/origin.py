"""From a plan back to the job it was made from: what else names the data that the next batches are of?"""

from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.plan.model import Plan, SourceFile
from planner.specs import library
from planner.specs.inputs import Inputs, Options, load
from planner.specs.job import Job

SHIPPED = "profiles/"  # begins the paths of what is shipped, see strategies/base.py


def inputs_of(plan: Plan, base: Path, job: str | None = None) -> Inputs:
    """The inputs of a plan that lies in `base`, as they were; `job`: where its job is, if not beside the plan.

    Raises InputError when the job is not found, or is another one today.
    """
    path = library.find(job, Job) if job else job_file(plan, base)
    made = plan.made
    lengths = plan.uses.sources.get("lengths")
    options = Options(
        first_row=made.first_row,
        seed=made.seed,
        effort=made.effort,
        lengths=str(located(lengths, path.parent)) if lengths else None,
    )
    for role in ("job", "lengths"):
        source = plan.uses.sources.get(role)
        found = located(source, path.parent) if source and role != "job" else path
        if source and files.digest(found) != source.sha256:
            raise InputError(
                f"the {role} changed since the plan was made", where=str(found), fix=f"planner solve {path} again"
            )
    return load(str(path.absolute()), options)


def job_file(plan: Plan, base: Path) -> Path:
    """The shipped job, or the one beside the plan."""
    source = plan.uses.sources.get("job")
    if source is None:
        raise InputError(
            "the plan does not say from which job it was made, and its next batches are of the job's data",
            where=f"{plan.name} (uses.sources)",
            fix="name the job with --job",
        )
    path = located(source, base)
    if not library.is_file(path):
        raise InputError(
            "the job of the plan is not there, and its next batches are of the job's data",
            where=str(path),
            fix="name it with --job, or keep the plan beside it",
        )
    return path


def located(source: SourceFile, base: Path) -> Path:
    """A source by its path, which is said from the folder of the job unless it is shipped."""
    if source.path.startswith(SHIPPED):
        return library.shipped() / source.path.removeprefix(SHIPPED)
    return base / source.path
