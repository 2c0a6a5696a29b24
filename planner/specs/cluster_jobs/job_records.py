"""A job as a file of any kind has it, and what it becomes: seconds for all of its work, by kind and number of GPUs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, NamedTuple, TypeVar

from planner.errors import Infeasible, InputError
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet, SecondsByCount
from planner.units import plural

StepSearch = Callable[["JobRecord", str, int], "JobStep | None"]  # on so many GPUs of a kind; None: impossible
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


class Throughputs(NamedTuple):
    """Steps a second: by model, kind and GPUs; and on one GPU by model, kind and the model beside."""

    alone: Mapping[str, Mapping[str, Mapping[int, float]]]
    beside: Mapping[str, Mapping[str, Mapping[str, float]]]

    def shares(self, model: str, kinds: Iterable[str]) -> dict[str, dict[str, float]]:
        """Parts of its speed alone that a model has beside others, by kind and other."""
        found: dict[str, dict[str, float]] = {}
        for kind in kinds:
            rates, alone = of_kind(self.beside.get(model, {}), kind), of_kind(self.alone.get(model, {}), kind).get(1)
            if rates and alone:
                found[kind] = {other: rate / alone for other, rate in rates.items()}
        return found


Rates = TypeVar("Rates")


def of_kind(table: Mapping[str, Mapping[Rates, float]], kind: str) -> Mapping[Rates, float]:
    """What a table has of a kind, in capitals or not."""
    return table.get(kind) or next((rates for name, rates in table.items() if name.lower() == kind.lower()), {})


class JobStep(NamedTuple):
    """Seconds of a step, and the layout that takes them."""

    seconds: float
    layout: str


class Speeds(NamedTuple):
    """Where a job's seconds come from, beside the duration that it states. `elastic`: steps are searched for every
    power of two of GPUs, too.
    """

    throughputs: Throughputs | None = None
    step_search: StepSearch | None = None
    elastic: bool = False


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
    seconds, layouts = dict[str, SecondsByCount](), dict[str, dict[int, str]]()
    if record.duration_s is not None:
        seconds = {kind: {record.gpus: max(record.duration_s, 1e-6)} for kind in kinds}
    elif record.steps is None:
        message = f"job `{record.id}` has no duration and no steps"
        raise InputError(message, where=record.where, fix="give it duration_s, or steps and model")
    elif speeds.throughputs is not None:
        seconds = seconds_by_table(record, kinds, speeds.throughputs)
    else:
        found = searched_steps(record, {kind: fleet.counts[kind] for kind in kinds}, speeds)
        seconds = {kind: {n: record.steps * step.seconds for n, step in steps.items()} for kind, steps in found.items()}
        layouts = {kind: {n: step.layout for n, step in steps.items()} for kind, steps in found.items()}
    job = ClusterJob(
        id=record.id,
        submit_s=record.submit_s - first,
        gpus=record.gpus,
        seconds=seconds,
        layouts=layouts,
        user=record.user,
        model=record.model,
        beside=speeds.throughputs.shares(record.model, kinds) if speeds.throughputs and record.gpus == 1 else {},
    )
    fleet.require_room(job, record.where)
    return job


def seconds_by_table(record: JobRecord, kinds: list[str], throughputs: Throughputs) -> dict[str, SecondsByCount]:
    """Seconds of all steps of a job, by the table of throughputs."""
    table, steps = throughputs.alone.get(record.model), record.steps or 0.0
    if table is None:
        message = f"the table of throughputs has no model `{record.model}`"
        raise InputError(message, where=record.where, fix=f"one of {', '.join(sorted(throughputs.alone)[:8])}")
    rates = {kind: of_kind(table, kind) for kind in kinds}
    return {kind: {n: steps / rate for n, rate in known.items()} for kind, known in rates.items() if known}


def searched_steps(record: JobRecord, sizes: Mapping[str, int], speeds: Speeds) -> dict[str, dict[int, JobStep]]:
    """Steps by kind and number of GPUs, by planner's search; `sizes`: of kinds."""
    if speeds.step_search is None or not record.model:
        message = f"how long a step of job `{record.id}` takes is not known"
        raise InputError(message, where=record.where, fix="--throughputs FILE, a model of planner's, or duration_s")
    found: dict[str, dict[int, JobStep]] = {}
    for kind, size in sizes.items():
        more = {2**power for power in range(size.bit_length())} if speeds.elastic else set()
        for count in sorted({record.gpus, *more}):
            if step := speeds.step_search(record, kind, count):
                found.setdefault(kind, {})[count] = step
    if not found:
        message = f"`{record.model}` fits on {plural(record.gpus, 'GPU')} of no kind of this cluster"
        raise Infeasible(message, where=record.where, fix="ask for more GPUs, or kinds with more memory")
    return found


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
