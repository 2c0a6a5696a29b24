"""Processes that plan for a run: one plans steps while others train, and ends with the run; another plans the run anew
for other devices than it had, and leaves a plan file.
"""

import gc
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from planner import files
from planner.errors import Infeasible, InputError, PlannerError, RunFailed
from planner.files import FolderQueue, hold_lock, is_locked
from planner.launch import describe_exception, die_with_parent, ignoring_interrupts
from planner.online.look_ahead import LookAheadPlanner
from planner.online.plan_inputs import inputs_beside_run
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.plan.step_files import FAILED_FILE, PLANNER_LOCK, RUN_LOCK
from planner.specs.base import Ranks
from planner.specs.hardware.cluster import part_of_cluster
from planner.specs.inputs import Inputs

IDLE_S = 0.01  # interval at which it looks which steps were taken
EXIT_S = 5.0
OBJECTS_OF_A_PLAN = 200_000
BUSY = "another planner writes steps into this folder"


@contextmanager
def run_planner(plan: Plan, folder: Path | None, until: int, base: Path, job: str | None) -> Iterator[None]:
    """Runs a planner process inside the block, which plans steps up to `until` into the emptied `folder`; None: no
    planner.

    Raises the planner's InputError or Infeasible when the run failed because a step was missing.
    """
    if folder is None:
        yield
        return
    inputs = inputs_beside_run(plan, base, job)
    with hold_lock(folder / PLANNER_LOCK, BUSY):
        FolderQueue(folder).clear()
    with reporting_process(serve, inputs, plan, folder, until) as receiver:
        receive_report(receiver)  # waits until it holds its lock
        try:
            yield
        except RunFailed as error:
            receive_report(receiver, error)
            raise


@contextmanager
def reporting_process(target: Callable[..., None], *args: object) -> Iterator[Connection]:
    """Runs `target(pipe, *args)` in a process of its own inside the block; yields the pipe of its reports."""
    context = multiprocessing.get_context("spawn")  # the launcher's fork server has loaded torch
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(sender, *args), name="planner")
    with ignoring_interrupts():
        process.start()
    sender.close()
    try:
        yield receiver
    finally:
        process.terminate()
        process.join(EXIT_S)
        process.kill()
        process.join()
        receiver.close()


def receive_report(pipe: Connection, failed: RunFailed | None = None) -> None:
    """Waits for a report of the planner; after a failure of the run, only reads one that is there. Raises the error
    that ended the planner.
    """
    if failed and not pipe.poll():
        return
    report: tuple[str, str, PlannerError | None] | None
    try:
        report = pipe.recv()
    except (EOFError, OSError):
        report = None if failed else ("the planner process ended without a report", "", None)
    if report:
        text, _, error = report
        raise error or RunFailed(f"planning failed: {text}") from failed


def serve(pipe: Connection, inputs: Inputs, plan: Plan, folder: Path, until: int) -> None:
    """Main function of the planner process, until its parent ends it."""
    threading.Thread(target=die_with_parent, daemon=True).start()
    try:
        with planner_lock(folder):
            pipe.send(None)
            ahead = LookAheadPlanner(inputs, plan, FolderQueue(folder), until)
            spare_collections()
            while True:
                if not ahead.advance():
                    time.sleep(IDLE_S)
    except BaseException as error:
        pipe.send(describe_exception(error))
        raise SystemExit(1) from None


def spare_collections() -> None:
    """Lets Python look for garbage in cycles seldom, and in nothing that is there by now: plans leave next to none, and
    each is so many objects that the search takes a tenth of planning.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_OF_A_PLAN)


@contextmanager
def planner_lock(folder: Path) -> Iterator[None]:
    """Locks the folder as its planner, and writes errors to a file for ranks that wait for a step."""
    with hold_lock(folder / PLANNER_LOCK, BUSY):
        (folder / FAILED_FILE).unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            files.write_text(folder / FAILED_FILE, str(error))
            raise


def plan_beside_run(inputs: Inputs, plan: Plan, folder: Path, until: int | None) -> None:
    """Plans for a run that another launcher starts or has started, until that ends."""
    with planner_lock(folder):
        ahead = LookAheadPlanner(inputs, plan, FolderQueue(folder), until)
        spare_collections()
        running = False
        while True:
            busy = ahead.advance()
            running_now = is_locked(folder / RUN_LOCK)
            if running and not running_now:
                return
            running |= running_now
            if not busy:
                time.sleep(IDLE_S)


PlanOf = Callable[[Inputs], Plan]  # a function of a module, so that a new process can import it


def plan_anew(inputs: Inputs, devices: Ranks, file: Path, plan_of: PlanOf) -> Plan:
    """The plan of a job on the most of these devices of its cluster that can serve it, which are the first ones; it is
    in `file` then. Raises Infeasible where not even one can.
    """
    with reporting_process(serve_plan, inputs, devices, file, plan_of) as reports:
        receive_report(reports)
    plan = files.read(file, Plan)
    require_legal(plan, str(file))
    return plan


def serve_plan(pipe: Connection, inputs: Inputs, devices: Ranks, file: Path, plan_of: PlanOf) -> None:
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
