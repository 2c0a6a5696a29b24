"""Plans a run anew for other devices than it had: in a process of its own, which leaves a plan file."""

import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from planner import files
from planner.errors import Infeasible, InputError, PlannerError
from planner.launch import describe_exception, die_with_parent
from planner.online.planner_process import receive_report, reporting_process
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.specs.base import Ranks
from planner.specs.hardware.cluster import part_of_cluster
from planner.specs.inputs import Inputs

PlanOf = Callable[[Inputs], Plan]  # a function of a module, so that a new process can import it


def plan_anew(inputs: Inputs, devices: Ranks, file: Path, plan_of: PlanOf) -> Plan:
    """The plan of a job on the most of these devices of its cluster that can serve it, which are the first ones; it is
    in `file` then. Raises Infeasible where not even one can.
    """
    with reporting_process(serve, inputs, devices, file, plan_of) as reports:
        receive_report(reports)
    plan = files.read(file, Plan)
    require_legal(plan, str(file))
    return plan


def serve(pipe: Connection, inputs: Inputs, devices: Ranks, file: Path, plan_of: PlanOf) -> None:
    """Main function of the planner process."""
    threading.Thread(target=die_with_parent, daemon=True).start()
    try:
        files.write(file, plan_on_most(inputs, devices, plan_of), durable=True)
        pipe.send(None)
    except BaseException as error:
        pipe.send(describe_exception(error))
        raise SystemExit(1) from None


def plan_on_most(inputs: Inputs, devices: Ranks, plan_of: PlanOf) -> Plan:
    """The plan on all of these devices, or on all but the last, and so on. Raises Infeasible with the reason why not
    even all of them serve the job.
    """
    reasons: list[PlannerError] = []
    for count in range(len(devices), 0, -1):
        cluster = part_of_cluster(inputs.cluster, devices[:count])
        try:
            return plan_of(replace(inputs, cluster=cluster))
        except (Infeasible, InputError) as error:
            reasons.append(error)
    first, fewer = reasons[0], " or fewer" if len(devices) > 1 else ""
    message = f"no plan of the job is for {len(devices)}{fewer} of its ranks: {first.message}"
    raise Infeasible(message, where=first.where, fix=first.fix)
