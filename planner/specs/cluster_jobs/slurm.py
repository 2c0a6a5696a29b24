"""Jobs of Slurm: what `squeue --json` and `sacct --json` print (data_parser 0.0.39 and later).

Without an end, a job is taken to last as long as its limit. Jobs without GPUs are left out, and those that ended before
they started. A job that runs has the GPUs that are allocated to it, whatever it asked for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from planner.errors import InputError
from planner.specs.cluster_jobs.job_records import JobRecord, Standing, of_kinds

STATES: Mapping[Standing, tuple[str, ...]] = {
    "waiting": ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
    "running": ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"),
    "ended": (
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
        *("OUT_OF_MEMORY", "REVOKED"),
    ),
}
STATE_OF: Mapping[str, Standing] = {name: state for state, names in STATES.items() for name in names}
GPUS = re.compile(r"gres[/:]gpu(?::(?P<kind>[\w.-]+?))?[=:](?P<count>\d+)(?![\w.-])")
HELD = {"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
HOLDING = ("JobHeld", "Dependency", "BeginTime")  # beginnings of the reasons of jobs that may not start
MINUTE = 60.0


def slurm_jobs(entries: list[Any], path: str) -> Iterator[JobRecord]:
    """The jobs of an answer with GPUs. Raises InputError."""
    for at, entry in enumerate(entries):
        where = f"{path} (jobs[{at}])"
        if not isinstance(entry, dict) or "job_id" not in entry:
            raise InputError("this is no job of Slurm", where=where, fix="what squeue --json or sacct --json prints")
        state = STATE_OF[states_of(entry, where)[0]]
        gpus, kinds = gpus_of(entry, has=state == "running")
        if gpus:
            record = slurm_job(entry, gpus, state, where)
            yield of_kinds(record, kinds)


def slurm_job(entry: Mapping[str, Any], gpus: int, state: Standing, where: str) -> JobRecord:
    """One job of `squeue`, whose times are at its top, or of `sacct`, whose are in `time`."""
    times = entry.get("time") if isinstance(entry.get("time"), dict) else None
    if times is not None:
        submit, start, end = (amount(times.get(key)) for key in ("submission", "start", "end"))
        limit = amount(times.get("limit"))
        elapsed = amount(times.get("elapsed"))
    else:
        submit, start = amount(entry.get("submit_time")), amount(entry.get("start_time"))
        limit, end = amount(entry.get("time_limit")), amount(entry.get("end_time"))
        elapsed = end - start if start and end else None
    job_id = id_of(entry, where)
    if submit is None:
        raise InputError(f"job {job_id} has no time of submission", where=where, fix="print the jobs again")
    start = start if state != "waiting" else None
    for earlier, later, what in (
        (submit, start, "starts before it is submitted"),
        (start, end, "ends before it starts"),
    ):
        if earlier and later and later < earlier:
            raise InputError(f"job {job_id} {what}", where=where, fix="its times go back: print the jobs again")
    duration = elapsed if state == "ended" else limit * MINUTE if limit else None
    user = entry.get("user_name") or entry.get("user") or ""
    return JobRecord(
        id=job_id,
        where=where,
        submit_s=submit,
        gpus=gpus,
        duration_s=duration,
        user=str(user),
        state=state,
        start_s=start,
        source="slurm",
        nodes=int(amount(entry.get("node_count")) or 1),
        held=held_by(entry, where) if state == "waiting" else "",
        left_out="ended before they started" if state == "ended" and not elapsed else "",
    )


def amount(value: Any) -> float | None:
    """A number as Slurm prints it, `{"set": true, "infinite": false, "number": 60}` or plain; None: none, or 0."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return float(value) if isinstance(value, int | float) and value > 0 else None


def states_of(entry: Mapping[str, Any], where: str) -> list[str]:
    """The state of a job, and flags beside it. Raises InputError for a state that Slurm does not have."""
    named = entry.get("job_state", entry.get("state"))
    if isinstance(named, dict):
        named = named.get("current")
    names = named if isinstance(named, list) and named else [named]
    if not isinstance(names[0], str) or names[0] not in STATE_OF:
        raise InputError(f"Slurm has no state `{names[0]}`", where=where, fix=f"one of {', '.join(STATE_OF)}")
    return names


def held_by(entry: Mapping[str, Any], where: str) -> str:
    """Why a job that waits may not start, in Slurm's words; empty: it may."""
    state, priority = entry.get("state"), entry.get("priority")
    reason = str(entry.get("state_reason") or (state.get("reason") if isinstance(state, dict) else "") or "")
    flags = HELD.intersection(map(str, states_of(entry, where)))
    if isinstance(priority, dict):
        priority = priority.get("number") if priority.get("set", True) and not priority.get("infinite") else None
    if reason.startswith(HOLDING):
        return reason
    return min(flags, default="hold" if entry.get("hold") is True else "priority 0" if priority == 0 else "")


def id_of(entry: Mapping[str, Any], where: str) -> str:
    """The number of a job; of a task of a job array `10_7`. Raises InputError for several tasks in one entry."""
    array = entry.get("array") if isinstance(entry.get("array"), dict) else None
    tasks = array.get("task") if array else entry.get("array_task_string")
    task = (array or {}).get("task_id") if array else entry.get("array_task_id")
    single = isinstance(task, dict) and task.get("set") and not task.get("infinite")
    if tasks and not single:
        message = f"job {entry['job_id']} is a job array, tasks {tasks}"
        raise InputError(message, where=where, fix="squeue --array --json prints each task as a job")
    if not single or not isinstance(task, dict):
        return str(entry["job_id"])
    number = amount(array.get("job_id") if array else entry.get("array_job_id"))
    return f"{int(number) if number else entry['job_id']}_{task['number']}"


def gpus_of(entry: Mapping[str, Any], has: bool) -> tuple[int, list[str]]:
    """How many GPUs a job asks for, and of which kinds, if it says; with `has`: those that it has, where they are told.

    Both are those of the first list that tells any: one may tell only how many.
    """
    tres = entry.get("tres") if isinstance(entry.get("tres"), dict) else None
    asked, allocated = (
        (gres_text(tres.get(key) or []) if tres else str(entry.get(told) or ""), 1)
        for key, told in (("requested", "tres_req_str"), ("allocated", "tres_alloc_str"))
    )
    each_node = (str(entry.get("tres_per_node") or ""), int(amount(entry.get("node_count")) or 1))
    lists = [allocated, asked, each_node] if has else [asked, allocated, each_node]
    found = [([*GPUS.finditer(text)], times) for text, times in lists]
    counts = (times * gpus_told(matches) for matches, times in found)
    kinds = (sorted({each["kind"] for each in matches if each["kind"]}) for matches, _ in found)
    return next(filter(None, counts), 0), next(filter(None, kinds), [])


def gpus_told(matches: Iterable[re.Match[str]]) -> int:
    """GPUs of a list, which tells how many there are of all kinds, or of each, or both."""
    told = [(bool(each["kind"]), int(each["count"])) for each in matches]
    return max(sum(count for of_kind, count in told if of_kind == typed) for typed in (False, True))


def gres_text(resources: Iterable[Mapping[str, Any]]) -> str:
    """Objects of `sacct` as the texts of `squeue` have them, `gres/gpu:h100=8`."""
    return ",".join(f"{each.get('type')}/{each.get('name')}={each.get('count')}" for each in resources)
