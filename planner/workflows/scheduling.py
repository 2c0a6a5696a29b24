"""The workflow of `planner schedule`: a trace of jobs run by a policy, beside baselines of the same order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner import files
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.policies import ORDERS, Schedule, happened, least_makespan, schedule_jobs
from planner.simulate import State, arrived
from planner.specs.base import ranges_text, with_fields
from planner.specs.cluster_jobs.actions_file import PolicyChoice, ScheduleOutcome
from planner.specs.cluster_jobs.job_records import Speeds, cluster_job
from planner.specs.cluster_jobs.job_tables import read_throughputs
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet
from planner.specs.cluster_jobs.read_jobs import read_fleet, read_jobs
from planner.units import first_few, plural
from planner.workflows.job_steps import step_search

MOST_BOUNDED = 2000  # jobs of the program of the bound
BASELINES = {  # of the same order, where running jobs stay as they are, by backfilling and place
    "strict": {"backfill": False, "place": "fastest"},
    "backfill, first": {"backfill": True, "place": "first"},
    "backfill, fastest": {"backfill": True, "place": "fastest"},
}


@dataclass(frozen=True, slots=True)
class ClusterQuestion:
    """Whose jobs on which GPUs. `seq`: tokens of a sequence, of jobs whose steps planner prices by its own search;
    `elastic`: for more counts than they ask for.
    """

    trace: Path
    cluster: str = ""
    gpus: str = ""
    throughputs: Path | None = None
    seq: int = 4096
    elastic: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
    """A schedule, its baselines by name, and the least makespan; None: not asked for, as counts or jobs are many."""

    schedule: Schedule
    baselines: dict[str, ScheduleOutcome]
    bound_s: float | None
    notes: tuple[str, ...] = ()  # what is not read of the file


def schedule_trace(question: ClusterQuestion, choice: PolicyChoice, on_run: OnProgress = silent) -> ScheduleAnswer:
    """The jobs of a trace, run. Raises InputError and Infeasible."""
    fleet = read_fleet(question.cluster, question.gpus)
    jobs, notes = trace_jobs(replace(question, elastic=choice.counts_change), fleet)
    order = choice.order if choice.order in ORDERS else "fifo"
    usual = PolicyChoice(order=order, restart_s=choice.restart_s)
    runs = {"": choice, **{name: with_fields(usual, **fields) for name, fields in BASELINES.items()}}
    done: dict[str, Schedule] = {}
    for number, (name, each) in enumerate(runs.items()):
        on_run(number, len(runs), name)
        done[name] = schedule_jobs(jobs, fleet, each)
    schedule = done.pop("")
    bounded = len(jobs) <= MOST_BOUNDED and not choice.counts_change and "pack" not in choice.places
    bound = bound_of(jobs, fleet) if bounded else None
    return ScheduleAnswer(
        schedule, {name: each.outcome for name, each in done.items()}, bound, (*notes, *schedule.notes)
    )


def trace_jobs(question: ClusterQuestion, fleet: Fleet) -> tuple[list[ClusterJob], list[str]]:
    """The jobs of a file, in order of submission, from the first one on; and what is not read of it. Raises InputError
    and Infeasible.
    """
    file = read_jobs(question.trace)
    records = sorted(file.records, key=lambda record: record.submit_s)
    speeds = speeds_of(question)
    return [cluster_job(record, fleet, speeds, records[0].submit_s) for record in records], file.notes


def speeds_of(question: ClusterQuestion) -> Speeds:
    table = read_throughputs(question.throughputs) if question.throughputs else None
    return Speeds(table, step_search(question.seq, question.elastic), question.elastic)


def bound_of(jobs: Sequence[ClusterJob], fleet: Fleet) -> float:
    """Seconds that no schedule of these jobs beats, with the counts that they ask for: were all there at once, and for
    each alone from when it comes.
    """
    waiting = {job.id: arrived(job, number, fleet) for number, job in enumerate(jobs)}
    together, _ = least_makespan(State(0.0, fleet, waiting, {}, {}))
    return max(together, *(job.submit_s + min(job.seconds[k][job.gpus] for k in fleet.kinds_for(job)) for job in jobs))


def job_story(schedule: Schedule, job: str) -> list[str]:
    """What happened to a job and why, a line for each decision about it. Raises InputError where there is none."""
    asked = next((each for each in schedule.jobs if each.id == job), None)
    if asked is None:
        known = [each.id for each in schedule.jobs]
        fix = files.nearest_word(job, known) or f"one of {first_few(known)}"
        raise InputError(f"no job is called `{job}`", where="--why", fix=fix)
    history, end = schedule.history, schedule.history.ends[job]
    at, fleet, left = asked.submit_s, schedule.fleet, dict(schedule.fleet.counts)
    there = [each for each in history.segments if each.since <= at < each.until and each.job != job]
    for each in there:
        left[each.kind] -= len(each.gpus)
    held = f"{sum(len(each.gpus) for each in there)} of {fleet.size} are in use"
    lines = [f"{at:,.0f} s: submitted, asks for {plural(asked.gpus, 'GPU')}; {held}"]
    starts: dict[str, float] = {}
    for each in history.segments:
        starts[each.job] = min(each.since, starts.get(each.job, each.since))
    if starts[job] > at:
        ahead = (each.id for each in schedule.jobs if each.id != job and each.submit_s <= at < starts[each.id])
        order = schedule.choice.order
        first = next(ahead, "") if order == "fifo" else ""
        why = f": {ORDERS[order].why} comes first" if order in ORDERS else f", by {order}"
        before = f"{first}, which comes first" if first else f"others{why}"
        lines.append(f"{at:,.0f} s: waits: {why_waits(asked.gpus, fleet.kinds_for(asked), left, before)}")
    for event, actions in history.decisions:
        for action in actions:
            if action.job == job:
                after = f", after {happened(event)[0]}" if event.happened else ""
                gpus = f" on {ranges_text(action.gpus)} of {fleet.kind_of[action.gpus[0]]}" if action.gpus else ""
                lines.append(f"{event.at:,.0f} s: {action.do}{gpus}{after}: {action.reason}")
    return [*lines, f"{end:,.0f} s: ended, {end - asked.submit_s:,.0f} s after it was submitted"]


def why_waits(gpus: int, kinds: Sequence[str], left: Mapping[str, int], before: str) -> str:
    """Why a job does not start while so many GPUs of each kind are left; `before`: who comes first."""
    kept = f", and kept for {before}" if any(left[kind] >= gpus for kind in kinds) else ""
    return f"asks for {gpus}; left are {', '.join(f'{count} of {kind}' for kind, count in left.items())}{kept}"


def asked(
    trace: Path | None, state: Path | None, cluster: str, gpus: str, throughputs: Path | None, seq: int
) -> ClusterQuestion:
    """The question that was typed. Raises InputError unless it has a trace or a queue."""
    path = trace or state
    if path is None or (trace and state):
        fix = "planner schedule TRACE, or planner schedule --state QUEUE"
        raise InputError("one of a trace and a queue has the jobs", where="TRACE", fix=fix)
    return ClusterQuestion(path, cluster, gpus, throughputs, seq)


def require_trace(given: Mapping[str, object]) -> None:
    """Raises InputError for an option of a trace beside a queue, of which there is one decision and no history."""
    option = next((name for name, value in given.items() if value), "")
    if option:
        fix = f"leave {option} out: why each job starts or waits stands beside it"
        raise InputError(f"{option} is of a trace, and a queue is decided about once", where=option, fix=fix)
