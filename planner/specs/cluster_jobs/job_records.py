"""A job as a file of any kind has it, and what it becomes: seconds for all of its work, by kind and number of GPUs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, NamedTuple

from planner.errors import Infeasible, InputError
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet, SecondsByCount
from planner.units import plural

Throughputs = Mapping[str, Mapping[str, Mapping[int, float]]]  # model → kind → GPUs → steps a second
StepSeconds = Callable[["JobRecord", str, int], float | None]  # of a step on so many GPUs of a kind; None: impossible
Standing = Literal["waiting", "running", "ended"]
MOST = 1e15  # seconds


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with the place where it stands; None and empty: not said there."""

    id: str
    where: str
    submit_s: float
    gpus: int
    duration_s: float | None = None
    steps: float | None = None
    model: str = ""
    kind: str = ""  # the only one that it may run on
    user: str = ""
    state: Standing = "waiting"
    start_s: float | None = None
    source: Literal["table", "slurm", "kueue"] = "table"
    nodes: int = 1  # over which its GPUs are spread alike
    held: str = ""  # why it may not start, though it waits
    left_out: str = ""  # why it is none to decide about


class JobFile(NamedTuple):
    """The jobs of a file, what is not read of it, and when it was printed."""

    records: list[JobRecord]
    notes: list[str]
    now_s: float | None = None


def of_kinds(record: JobRecord, kinds: Sequence[str]) -> JobRecord:
    """A job on the kind that its queue tells; of several it is left out. Raises InputError where it runs on them."""
    if len(kinds) < 2:
        return replace(record, kind="".join(kinds))
    if record.state == "running":
        message = f"job {record.id} has GPUs of {' and '.join(kinds)}, and jobs here have one kind"
        raise InputError(message, where=record.where, fix="take it and its GPUs out of the file and of the cluster")
    return replace(record, left_out="GPUs of several kinds in one job")


class Speeds(NamedTuple):
    """Where a job's seconds come from, beside the duration that it states."""

    throughputs: Throughputs | None = None
    step_seconds: StepSeconds | None = None


def number(text: str, what: str, where: str, least: float = 0.0) -> float:
    """A number of a file. Raises InputError for any other text, and for what is below `least` or beyond reason."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and least <= value <= MOST):
        raise InputError(f"{what} is `{text}`", where=where, fix=f"a number from {least:g}")
    return value


def cluster_job(record: JobRecord, fleet: Fleet, speeds: Speeds, first: float) -> ClusterJob:
    """The job of a record, its time counted from `first`. Raises InputError and Infeasible."""
    kinds = [known_kind(record.kind, fleet, record.where)] if record.kind else [*fleet.counts]
    if record.duration_s is not None:
        seconds = {kind: {record.gpus: max(record.duration_s, 1e-6)} for kind in kinds}
    elif record.steps is None:
        message = f"job `{record.id}` has no duration and no steps"
        raise InputError(message, where=record.where, fix="give it duration_s, or steps and model")
    else:
        seconds = seconds_of_steps(record, kinds, speeds)
    job = ClusterJob(
        id=record.id, submit_s=record.submit_s - first, gpus=record.gpus, seconds=seconds, user=record.user
    )
    fleet.require_room(job, record.where)
    return job


def seconds_of_steps(record: JobRecord, kinds: list[str], speeds: Speeds) -> dict[str, SecondsByCount]:
    """Seconds of all steps of a job: by the table of throughputs, else by planner's search for the asked count."""
    steps = record.steps or 0.0
    if speeds.throughputs is not None:
        table = speeds.throughputs.get(record.model)
        if table is None:
            message = f"the table of throughputs has no model `{record.model}`"
            raise InputError(message, where=record.where, fix=f"one of {', '.join(sorted(speeds.throughputs)[:8])}")
        by_lower = {kind.lower(): rates for kind, rates in table.items()}
        rates = {kind: table.get(kind) or by_lower.get(kind.lower(), {}) for kind in kinds}
        return {kind: {n: steps / rate for n, rate in known.items()} for kind, known in rates.items() if known}
    if speeds.step_seconds is None or not record.model:
        message = f"how long a step of job `{record.id}` takes is not known"
        raise InputError(message, where=record.where, fix="--throughputs FILE, a model of planner's, or duration_s")
    found = {kind: speeds.step_seconds(record, kind, record.gpus) for kind in kinds}
    if not any(found.values()):
        message = f"`{record.model}` fits on {plural(record.gpus, 'GPU')} of no kind of this cluster"
        raise Infeasible(message, where=record.where, fix="ask for more GPUs, or kinds with more memory")
    return {kind: {record.gpus: steps * seconds} for kind, seconds in found.items() if seconds}


def known_kind(named: str, fleet: Fleet, where: str) -> str:
    """The kind of this cluster that is meant by a name or its beginning. Raises InputError."""
    kinds = [*fleet.counts]
    lower = named.lower()
    same, alike = [k for k in kinds if k == named], [k for k in kinds if k.lower() == lower]
    meant = same or alike or [k for k in kinds if k.lower().startswith(f"{lower}-")]
    if len(meant) != 1:
        message = f"no kind of this cluster is called `{named}`"
        raise InputError(message, where=where, fix=f"one of {', '.join(kinds)}")
    return meant[0]
