"""One decision for a living queue: what a policy would do now, why, and the commands that would do it, as text.

Nothing is executed. `now` is when the queue was printed, where it says so, else the last time that stands in it. Which
GPUs a running job has, queues do not say alike: it is given as many of its kind, as near to each other as there are.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import Infeasible, InputError
from planner.policies import ORDERS, nearest_gpus, policy
from planner.simulate import Action, Event, JobState, State, arrived, require_possible
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.job_records import JobRecord, Speeds, cluster_job
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet
from planner.specs.cluster_jobs.read_jobs import read_fleet, read_jobs
from planner.workflows.scheduling import ClusterQuestion, speeds_of, why_waits

TOP = 10**6  # priority of the first to start


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """What would happen to each job, and the commands by which."""

    state: State
    actions: tuple[Action, ...]
    waits: dict[str, str]  # job that neither runs nor starts → why
    commands: tuple[str, ...]
    now_s: float  # as the queue counts it
    printed: bool  # whether the queue tells it; else it is the last time that stands there
    notes: tuple[str, ...]


def decide_queue(question: ClusterQuestion, choice: PolicyChoice) -> QueueDecision:
    """The decision for the queue of a file. Raises InputError and Infeasible."""
    fleet, file = read_fleet(question.cluster, question.gpus), read_jobs(question.trace)
    speeds = speeds_of(replace(question, elastic=choice.counts_change))
    records = {record.id: record for record in file.records if record.state != "ended"}
    if not records:
        raise InputError("no job of this queue waits or runs", where=str(question.trace), fix="print it again")
    times = [time for each in records.values() for time in (each.submit_s, each.start_s) if time is not None]
    first, now = min(times), max([*times, file.now_s or 0.0])
    jobs, waits = able_jobs(sorted(records.values(), key=lambda record: record.submit_s), fleet, speeds, first)
    free = State(now - first, fleet, {}, {}, {n: frozenset(node.gpus) for n, node in enumerate(fleet.nodes)})
    state = queue_state(jobs, records, replace(free, restart_s=choice.restart_s))
    event = Event(state.now, tuple(("arrival", job) for job in state.waiting))
    actions = tuple(action for action in policy(choice, fleet)(state, event) if action.do != "wait")
    require_possible(actions, state, "the decision")
    waits |= waiting_reasons(state, actions, choice)
    commands = [
        line
        for at, action in enumerate(actions)
        for line in commands_of(
            records[action.job], action, TOP - at, fleet.kind_of[action.gpus[0]] if action.gpus else ""
        )
    ]
    notes = [*file.notes]
    if any(action.do != "start" for action in actions):
        notes.append("a job that runs loses its work since its last checkpoint where it stops or starts anew")
    if any(command.startswith("kubectl") for command in commands):
        notes.append("Kueue chooses kinds by the flavors of its queues: the commands only say who comes first")
    return QueueDecision(state, actions, waits, tuple(commands), now, file.now_s == now, tuple(notes))


def able_jobs(
    records: Sequence[JobRecord], fleet: Fleet, speeds: Speeds, first: float
) -> tuple[list[ClusterJob], dict[str, str]]:
    """Jobs that run or may start, and why others cannot. Raises InputError and Infeasible for what runs."""
    jobs: list[ClusterJob] = []
    waits = {record.id: f"held: {record.held}" for record in records if record.held}
    for record in records:
        try:
            if not record.held:
                jobs.append(cluster_job(record, fleet, speeds, first))
        except (Infeasible, InputError) as error:
            if record.state == "running":
                raise
            can = "can never run here" if isinstance(error, Infeasible) or record.kind else "cannot be decided about"
            waits[record.id] = f"{can}: {error.message}"
    return jobs, waits


def waiting_reasons(state: State, actions: Sequence[Action], choice: PolicyChoice) -> dict[str, str]:
    """Why each job that could start does not."""
    left = state.free_counts()
    for action in actions:
        for gpu in action.gpus:
            left[state.fleet.kind_of[gpu]] -= 1
        for gpu in state.running[action.job].gpus if action.job in state.running else ():
            left[state.fleet.kind_of[gpu]] += 1
    queue = ORDERS[choice.order].queue(state, False) if choice.order in ORDERS else ()
    decided = {action.job for action in actions}
    first = next((f"{job.job.id}, which comes first" for job in queue if job.job.id not in decided), "others")
    return {
        job: why_waits(waits.job.gpus, waits.kinds, left, first)
        for job, waits in state.waiting.items()
        if job not in decided
    }


def queue_state(jobs: Sequence[ClusterJob], records: Mapping[str, JobRecord], empty: State) -> State:
    """The queue as policies see it. Raises InputError for running jobs that have more GPUs than there are."""
    fleet, now = empty.fleet, empty.now
    waiting: dict[str, JobState] = {}
    running: dict[str, JobState] = {}
    free = {number: {*gpus} for number, gpus in empty.free.items()}
    room = dict(fleet.counts)
    for number, job in enumerate(jobs):
        record = records[job.id]
        if record.state == "waiting":
            waiting[job.id] = arrived(job, number, fleet)
            continue
        kind = next((kind for kind in fleet.kinds_for(job) if room[kind] >= job.gpus), None)
        if kind is None:
            message = f"running jobs have more GPUs than there are, `{job.id}` among them"
            raise InputError(message, where=record.where, fix="give the whole cluster, by --gpus or --cluster")
        room[kind] -= job.gpus
        gpus = nearest_gpus(free, fleet, kind, job.gpus)
        since = job.submit_s if record.start_s is None else job.submit_s + record.start_s - record.submit_s
        seconds = max(job.seconds[kind][job.gpus], now - since)  # it still runs
        run = replace(arrived(job, number, fleet), gpus=gpus, kind=kind, started=since, since=since, ready=since)
        running[job.id] = replace(run, seconds=seconds, end=since + seconds)
    return replace(empty, waiting=waiting, running=running, free={n: frozenset(gpus) for n, gpus in free.items()})


def commands_of(record: JobRecord, action: Action, priority: int, kind: str) -> Iterator[str]:
    """The commands by which a queue does what was decided about one of its jobs; of a table there are none."""
    starts = action.do in ("start", "move", "resize")
    if record.source == "slurm":
        job = shlex.quote(record.id)
        if action.do != "start":
            yield f"scontrol requeue {job}"
        if starts:
            each, rest = divmod(len(action.gpus), record.nodes)  # Gres counts those of a node
            gres = "" if rest else f"Gres=gpu:{kind}:{each} "
            yield f"scontrol update JobId={job} {gres}Priority={priority}"
    if record.source == "kueue":
        namespace, _, name = record.id.partition("/")
        patch = {"spec": {"priority": priority} if action.do == "start" else {"active": False}}
        at = f"{shlex.quote(name)} -n {shlex.quote(namespace)}"
        yield f"kubectl patch workload {at} --type merge -p {shlex.quote(json.dumps(patch))}"
        if action.do in ("move", "resize"):
            patch = {"spec": {"active": True, "priority": priority}}
            yield f"kubectl patch workload {at} --type merge -p {shlex.quote(json.dumps(patch))}"
