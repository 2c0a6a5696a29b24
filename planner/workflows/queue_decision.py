"""One decision for a living queue: what a policy would do now, why, and the commands that would do it, as text.

Nothing is executed. `now` is the last time that stands in the queue. Which GPUs a running job has, queues do not say
alike: it is given as many of its kind, as near to each other as there are.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.policies import nearest_gpus, policy
from planner.simulate import Action, Delays, Event, JobState, State, arrived, require_possible, seconds_alone
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.job_records import JobRecord, cluster_job
from planner.specs.cluster_jobs.jobs import Fleet
from planner.specs.cluster_jobs.read_jobs import read_fleet, read_jobs
from planner.workflows.scheduling import ClusterQuestion, speeds_of

TOP = 10**6  # priority of the first to start


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """What would happen to each job, and the commands by which."""

    state: State
    actions: tuple[Action, ...]
    waits: dict[str, str]  # job that neither runs nor starts → why
    commands: tuple[str, ...]


def decide_queue(question: ClusterQuestion, choice: PolicyChoice) -> QueueDecision:
    """The decision for the queue of a file. Raises InputError and Infeasible."""
    fleet = read_fleet(question.cluster, question.gpus)
    records = {record.id: record for record in read_jobs(question.trace) if record.state != "ended"}
    if not records:
        raise InputError("no job of this queue waits or runs", where=str(question.trace), fix="print it again")
    state = queue_state([*records.values()], fleet, question, Delays(restart=choice.restart_s))
    event = Event(state.now, tuple(("arrival", job) for job in state.waiting))
    actions = tuple(action for action in policy(choice)(state, event) if action.do != "wait")
    require_possible(actions, state, seconds_alone, "the decision")
    left = state.free_counts()
    for action in actions:
        for gpu in action.gpus:
            left[fleet.kind_of[gpu]] -= 1
        for gpu in state.running[action.job].gpus if action.job in state.running else ():
            left[fleet.kind_of[gpu]] += 1
    room = ", ".join(f"{count} of {kind}" for kind, count in left.items())
    decided = {action.job for action in actions}
    waits = {job: f"asks for {s.job.gpus}; left are {room}" for job, s in state.waiting.items() if job not in decided}
    commands = [
        line
        for at, action in enumerate(actions)
        for line in commands_of(
            records[action.job], action, TOP - at, fleet.kind_of[action.gpus[0]] if action.gpus else ""
        )
    ]
    return QueueDecision(state, actions, waits, tuple(commands))


def queue_state(records: Sequence[JobRecord], fleet: Fleet, question: ClusterQuestion, delays: Delays) -> State:
    """The queue as policies see it. Raises InputError for running jobs that have more GPUs than there are."""
    records = sorted(records, key=lambda record: record.submit_s)
    first, speeds = records[0].submit_s, speeds_of(question)
    now = max(time for record in records for time in (record.submit_s, record.start_s) if time is not None) - first
    waiting: dict[str, JobState] = {}
    running: dict[str, JobState] = {}
    free = {number: {*node.gpus} for number, node in enumerate(fleet.nodes)}
    room = dict(fleet.counts)
    for number, record in enumerate(records):
        job = cluster_job(record, fleet, speeds, first)
        if record.state == "waiting":
            waiting[job.id] = arrived(job, number, fleet)
            continue
        kind = next((kind for kind in fleet.kinds_for(job) if room[kind] >= job.gpus), None)
        if kind is None:
            message = f"running jobs have more GPUs than there are, `{job.id}` among them"
            raise InputError(message, where=record.where, fix="give the whole cluster, by --gpus or --cluster")
        room[kind] -= job.gpus
        gpus = nearest_gpus(free, fleet, kind, job.gpus)
        since = (record.start_s or record.submit_s) - first
        seconds = max(job.seconds[kind][job.gpus], now - since)  # it still runs
        run = replace(arrived(job, number, fleet), gpus=gpus, kind=kind, started=since, since=since, ready=since)
        running[job.id] = replace(run, seconds=seconds, end=since + seconds)
    return State(now, fleet, waiting, running, {n: frozenset(gpus) for n, gpus in free.items()}, delays)


def commands_of(record: JobRecord, action: Action, priority: int, kind: str) -> Iterator[str]:
    """The commands by which a queue does what was decided about one of its jobs; of a table there are none."""
    starts = action.do in ("start", "move", "resize")
    if record.source == "slurm":
        job = shlex.quote(record.id)
        if action.do != "start":
            yield f"scontrol requeue {job}"
        if starts:
            yield f"scontrol update JobId={job} Gres=gpu:{kind}:{len(action.gpus)} Priority={priority}"
    if record.source == "kueue":
        namespace, _, name = record.id.partition("/")
        patch = {"spec": {"priority": priority} if action.do == "start" else {"active": False}}
        at = f"{shlex.quote(name)} -n {shlex.quote(namespace)}"
        yield f"kubectl patch workload {at} --type merge -p {shlex.quote(json.dumps(patch))}"
        if action.do in ("move", "resize"):
            patch = {"spec": {"active": True, "priority": priority}}
            yield f"kubectl patch workload {at} --type merge -p {shlex.quote(json.dumps(patch))}"
