"""Jobs of Slurm: what `squeue --json` and `sacct --json` print (data_parser 0.0.39 and later).

Without an end, a job is taken to last as long as its limit. Jobs without GPUs are left out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.errors import InputError
from planner.specs.cluster_jobs.job_records import JobRecord

STATES = {
    "waiting": ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
    "running": ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"),
    "ended": (
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
        *("OUT_OF_MEMORY", "REVOKED"),
    ),
}
STATE_OF = {name: state for state, names in STATES.items() for name in names}
GPUS = re.compile(r"gres[/:]gpu(?::(?P<kind>[\w.-]+?))?[=:](?P<count>\d+)(?![\w.-])")
MINUTE = 60.0


def slurm_jobs(entries: list[Any], path: str) -> Iterator[JobRecord]:
    """The jobs of an answer with GPUs. Raises InputError."""
    for at, entry in enumerate(entries):
        where = f"{path} (jobs[{at}])"
        if not isinstance(entry, dict) or "job_id" not in entry:
            raise InputError("this is no job of Slurm", where=where, fix="what squeue --json or sacct --json prints")
        gpus, kind = gpus_of(entry)
        if gpus:
            yield slurm_job(entry, gpus, kind, where)


def slurm_job(entry: Mapping[str, Any], gpus: int, kind: str, where: str) -> JobRecord:
    """One job of `squeue`, whose times are at its top, or of `sacct`, whose are in `time`."""
    times = entry.get("time") if isinstance(entry.get("time"), dict) else None
    if times is not None:
        submit, start, end = (amount(times.get(key)) for key in ("submission", "start", "end"))
        limit = amount(times.get("limit"))
        elapsed = amount(times.get("elapsed"))
    else:
        submit, start = amount(entry.get("submit_time")), amount(entry.get("start_time"))
        limit, end, elapsed = amount(entry.get("time_limit")), None, None
    state = state_of(entry, where)
    job_id = str(entry["job_id"]) + task_of(entry, where)
    if submit is None:
        raise InputError(f"job {job_id} has no time of submission", where=where, fix="print the jobs again")
    start = start if state != "waiting" else None
    for earlier, later, what in (
        (submit, start, "starts before it is submitted"),
        (start, end, "ends before it starts"),
    ):
        if earlier and later and later < earlier:
            raise InputError(f"job {job_id} {what}", where=where, fix="its times go back: print the jobs again")
    duration = elapsed if state == "ended" and elapsed else limit * MINUTE if limit else None
    user = entry.get("user_name") or entry.get("user") or ""
    return JobRecord(
        id=job_id,
        where=where,
        submit_s=submit,
        gpus=gpus,
        duration_s=duration,
        kind=kind,
        user=str(user),
        state=state,  # type: ignore[arg-type]
        start_s=start,
        source="slurm",
    )


def amount(value: Any) -> float | None:
    """A number as Slurm prints it, `{"set": true, "infinite": false, "number": 60}` or plain; None: none, or 0."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return float(value) if isinstance(value, int | float) and value > 0 else None


def state_of(entry: Mapping[str, Any], where: str) -> str:
    """Whether a job waits, runs or has ended. Raises InputError for a state that Slurm does not have."""
    named = entry.get("job_state", entry.get("state"))
    if isinstance(named, dict):
        named = named.get("current")
    first = named[0] if isinstance(named, list) and named else named
    if not isinstance(first, str) or first not in STATE_OF:
        raise InputError(f"Slurm has no state `{first}`", where=where, fix=f"one of {', '.join(STATE_OF)}")
    return STATE_OF[first]


def task_of(entry: Mapping[str, Any], where: str) -> str:
    """`_7` of a task of a job array; empty of other jobs. Raises InputError for several tasks in one entry."""
    array = entry.get("array") if isinstance(entry.get("array"), dict) else None
    tasks = array.get("task") if array else entry.get("array_task_string")
    task = (array or {}).get("task_id") if array else entry.get("array_task_id")
    single = isinstance(task, dict) and task.get("set") and not task.get("infinite")
    if tasks and not single:
        message = f"job {entry['job_id']} is a job array, tasks {tasks}"
        raise InputError(message, where=where, fix="squeue --array --json prints each task as a job")
    return f"_{task['number']}" if single and isinstance(task, dict) else ""


def gpus_of(entry: Mapping[str, Any]) -> tuple[int, str]:
    """How many GPUs a job asks for, and of which kind, if it says."""
    tres = entry.get("tres") if isinstance(entry.get("tres"), dict) else None
    if tres:
        listed = tres.get("requested") or tres.get("allocated") or []
        found = [each for each in listed if each.get("type") == "gres" and str(each.get("name", "")).startswith("gpu")]
        kinds = [str(each["name"]).partition(":")[2] for each in found if ":" in str(each["name"])]
        return max((int(each.get("count", 0)) for each in found), default=0), kinds[0] if kinds else ""
    for key, times in (("tres_req_str", 1), ("tres_alloc_str", 1), ("tres_per_node", amount(entry.get("node_count")))):
        matches = [*GPUS.finditer(str(entry.get(key) or ""))]
        if matches:
            kinds = [each["kind"] for each in matches if each["kind"]]
            return max(int(each["count"]) for each in matches) * int(times or 1), kinds[0] if kinds else ""
    return 0, ""
