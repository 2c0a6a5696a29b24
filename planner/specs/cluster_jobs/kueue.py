"""Jobs of Kueue: what `kubectl get workloads -o json` prints (kueue.x-k8s.io/v1beta1).

A workload lasts as long as its `maximumExecutionTimeSeconds`. Workloads without GPUs are left out.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from planner.errors import InputError
from planner.specs.cluster_jobs.job_records import JobRecord, Standing, of_kinds

GPU = "nvidia.com/gpu"
PRODUCT = f"{GPU}.product"  # label of nodes
CONDITIONS = {
    *("QuotaReserved", "Admitted", "PodsReady", "Finished", "Evicted", "Preempted", "Requeued"),
    *("DeactivationTarget", "BlockedOnPreemptionGates", "SecondPassRequeued"),
}


def kueue_jobs(items: list[Any], path: str) -> Iterator[JobRecord]:
    """The workloads of an answer with GPUs. Raises InputError."""
    for at, item in enumerate(items):
        where = f"{path} (items[{at}])"
        try:
            record = workload(item, where)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            fix = "what kubectl get workloads -o json prints"
            raise InputError(f"this is no workload of Kueue: {error}", where=where, fix=fix) from error
        if record.gpus:
            yield record


def workload(item: Mapping[str, Any], where: str) -> JobRecord:
    metadata, spec = item["metadata"], item["spec"]
    held = {each["type"]: each for each in item.get("status", {}).get("conditions", []) if each["status"] == "True"}
    for name in held:
        if name not in CONDITIONS:
            fix = f"one of {', '.join(sorted(CONDITIONS))}"
            raise InputError(f"Kueue has no condition `{name}`", where=where, fix=fix)
    state: Standing = "ended" if "Finished" in held else "running" if "Admitted" in held else "waiting"
    submit = seconds_of(metadata["creationTimestamp"])
    start = seconds_of(held["Admitted"]["lastTransitionTime"]) if "Admitted" in held else None
    name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
    if start is not None and start < submit:
        message = f"{name} was admitted before it was created"
        raise InputError(message, where=where, fix="its times go back: print the workloads again")
    limit = spec.get("maximumExecutionTimeSeconds")
    record = JobRecord(
        id=name,
        where=where,
        submit_s=submit,
        gpus=sum(gpus_of(pods) * int(pods["count"]) for pods in spec["podSets"]),
        duration_s=float(limit) if limit else None,
        user=str(spec.get("queueName", "")),
        state=state,
        start_s=start,
        source="kueue",
        held="deactivated: spec.active is false" if state == "waiting" and spec.get("active") is False else "",
    )
    return of_kinds(record, kinds_of(item, has=state == "running"))


def seconds_of(stamp: str) -> float:
    """Seconds since 1970 of a time as Kubernetes writes it."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def gpus_of(pods: Mapping[str, Any]) -> int:
    """GPUs of one pod."""
    containers = pods["template"]["spec"]["containers"]
    asked = (each.get("resources", {}) for each in containers)
    return sum(int({**each.get("limits", {}), **each.get("requests", {})}.get(GPU, 0)) for each in asked)


def kinds_of(item: Mapping[str, Any], has: bool) -> list[str]:
    """The kinds of GPUs that pods select by their nodes' label, none: any; with `has`: the flavors that they have."""
    selected = {pods["template"]["spec"].get("nodeSelector", {}).get(PRODUCT) for pods in item["spec"]["podSets"]}
    assigned = item["status"].get("admission", {}).get("podSetAssignments", []) if has else []
    flavors = {pods.get("flavors", {}).get(GPU) for pods in assigned}
    return sorted(flavors - {None} or selected - {None})
