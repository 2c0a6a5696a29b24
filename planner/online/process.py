"""The process that plans while others train: it lives as long as the run, and no longer."""

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from planner import files
from planner.errors import PlannerError, RunFailed
from planner.files.lock import held, hold
from planner.files.slots import Slots
from planner.launch.failures import describe
from planner.launch.interrupts import interrupts_ignored
from planner.launch.processes import die_with_parent
from planner.online.ahead import Ahead
from planner.online.origin import inputs_of
from planner.plan.model import Plan
from planner.plan.steps import FAILED, PLANNER_LOCK, RUN_LOCK
from planner.specs.inputs import Inputs

IDLE_S = 0.01  # between two looks at what was taken
EXIT_S = 5.0
BUSY = "another planner writes steps into this folder"


@contextmanager
def planning(plan: Plan, folder: Path | None, until: int, base: Path, job: str | None) -> Iterator[None]:
    """Inside the block, steps up to `until` are planned into `folder`, from none: a run begins. Without one, nothing.

    Raises what the planner raised, InputError or Infeasible, when the run failed for want of a step.
    """
    if folder is None:
        yield
        return
    inputs = inputs_of(plan, base, job)
    with hold(folder / PLANNER_LOCK, BUSY):
        Slots(folder).clear()
    context = multiprocessing.get_context("spawn")  # the launcher's fork server has loaded torch
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(theirs, inputs, plan, folder, until), name="planner")
    with interrupts_ignored():
        process.start()
    theirs.close()
    try:
        heard(ours)  # that it holds its lock
        yield
    except RunFailed as error:
        heard(ours, error)
        raise
    finally:
        process.terminate()
        process.join(EXIT_S)
        process.kill()
        process.join()
        ours.close()


def heard(pipe: Connection, failed: RunFailed | None = None) -> None:
    """Wait for a word of the planner; after a failure take what it has said. Raises the error that ended it."""
    if failed and not pipe.poll():
        return
    said: tuple[str, str, PlannerError | None] | None
    try:
        said = pipe.recv()
    except (EOFError, OSError):
        said = None if failed else ("it ended without a word, before it began", "", None)
    if said:
        text, _, error = said
        raise error or RunFailed(f"planning failed: {text}") from failed


def serve(pipe: Connection, inputs: Inputs, plan: Plan, folder: Path, until: int) -> None:
    """The whole life of the process, until its parent ends it."""
    threading.Thread(target=die_with_parent, daemon=True).start()
    try:
        with at_work(folder):
            pipe.send(None)
            ahead = Ahead(inputs, plan, Slots(folder), until)
            while True:
                if not ahead.advance():
                    time.sleep(IDLE_S)
    except BaseException as error:
        pipe.send(describe(error))
        raise SystemExit(1) from None


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Hold the folder as its planner, and leave word of what goes wrong to those who wait for a step."""
    with hold(folder / PLANNER_LOCK, BUSY):
        (folder / FAILED).unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            files.write_text(folder / FAILED, str(error))
            raise


def beside(inputs: Inputs, plan: Plan, folder: Path, until: int | None) -> None:
    """Plan for a run that somebody else launches, or has launched: until it has ended."""
    with at_work(folder):
        ahead = Ahead(inputs, plan, Slots(folder), until)
        running = False
        while True:
            worked = ahead.advance()
            runs = held(folder / RUN_LOCK)
            if running and not runs:
                return
            running |= runs
            if not worked:
                time.sleep(IDLE_S)
