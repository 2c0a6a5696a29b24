"""Finds the job from which a plan was solved, and its inputs: they define the data of the next batches."""

from dataclasses import replace
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.plan.plan_file import Plan, SourceFile
from planner.specs import library
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.specs.job import Job

DATA = ("lengths", "stream ")  # how roles of files begin that say sizes of items
SHIPPED = "profiles/"  # prefix of the paths of shipped files, see strategies/plan_drafts.py


def inputs_of_plan(plan: Plan, base: Path, job: str | None = None) -> Inputs:
    """The inputs of a plan in folder `base`; `job`: path of its job, if not beside the plan.

    Raises InputError when the job is not found, or it or its lengths have changed since.
    """
    path = library.find_file(job, Job) if job else job_file(plan, base)
    made = plan.made
    lengths = plan.uses.sources.get("lengths")
    options = JobOptions(
        batches=made.batches,
        first_row=made.first_row,
        seed=made.seed,
        effort=made.effort,
        lengths=str(source_path(lengths, path.parent)) if lengths else None,
    )
    for role, source in plan.uses.sources.items():
        if role != "job" and not role.startswith(DATA):
            continue
        path_now = path if role == "job" else source_path(source, path.parent)
        if files.digest(path_now) != source.sha256:
            raise InputError(
                f"the {role} changed since the plan was made", where=str(path_now), fix=f"planner solve {path} again"
            )
    inputs = load_job(str(path.absolute()), options)
    own = (each.inputs for each in inputs.offers if each.inputs.cluster == plan.uses.cluster)
    return next(own, inputs)  # of a pool what was chosen


def inputs_beside_run(plan: Plan, base: Path, job: str | None = None) -> Inputs:
    """The inputs that further batches of a plan are planned with: on its own ranks, where a run that lost some of its
    job's was planned anew. Raises InputError.
    """
    inputs = inputs_of_plan(plan, base, job)
    return replace(inputs, cluster=plan.uses.cluster) if plan.size < inputs.cluster.size else inputs


def job_file(plan: Plan, base: Path) -> Path:
    """The shipped job, or the one beside the plan."""
    source = plan.uses.sources.get("job")
    if source is None:
        raise InputError(
            "the plan does not name its job, whose data the next batches come from",
            where=f"{plan.name} (uses.sources)",
            fix="name the job with --job",
        )
    path = source_path(source, base)
    if not library.is_file(path):
        raise InputError(
            "the plan's job, whose data the next batches come from, is missing",
            where=str(path),
            fix="name it with --job, or keep the plan beside it",
        )
    return path


def source_path(source: SourceFile, base: Path) -> Path:
    """Path of a source file, which is relative to the folder of the job unless it is shipped."""
    if source.path.startswith(SHIPPED):
        return library.shipped_folder() / source.path.removeprefix(SHIPPED)
    return base / source.path
