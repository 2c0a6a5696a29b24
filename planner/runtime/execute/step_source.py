"""Source of a run's steps: its plan, over and over; or a folder, where each is planned while earlier ones train.

Rank 0 takes a step out of the folder and broadcasts it during the previous step, over a separate gloo group: ranks wait
only if it has not arrived when they need it.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist

from planner import files
from planner.errors import RunFailed
from planner.files import FolderQueue, hold_lock, is_locked
from planner.launch import Worker
from planner.launch.communication import broadcast_message
from planner.plan.plan_file import Plan
from planner.plan.step_files import (
    FAILED_FILE,
    PLANNER_LOCK,
    RUN_LOCK,
    SPENT_FILE,
    STEP_FILE,
    PlanHead,
    PlanningTime,
    StepFile,
)
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.runtime.execute.step_loader import LoadedStep, loaded_steps
from planner.runtime.health.rollback import batch_of, read_skipped
from planner.runtime.preflight.data_checks import require_same_samples
from planner.runtime.preflight.preflight_checks import require_executable
from planner.runtime.state.rank_state import RankState
from planner.specs.workload.sample_folder import has_media, open_sample_folder

POLL_S = 0.002  # interval at which rank 0 looks for a step
PLANNER_START_S = 30.0  # how long the planner may take to start
PLANNER_RESTART_S = 3.0  # how long a planner that ended may take to restart
STEP_TIMEOUT_S = 600.0  # how long a running planner may take for a step


@dataclass(frozen=True, slots=True)
class StepTasks:
    """The tasks of a step, how long planning it took, and how long this rank waited for it."""

    tasks: Sequence[Task]
    plan: Plan | None = None  # whose step it is; None: the run's own
    planned_s: float | None = None  # None: planned before the run
    waited_s: float = 0.0
    loaded: LoadedStep = field(default_factory=LoadedStep)  # contents that were loaded ahead


class PlannedStep(NamedTuple):
    """A step as rank 0 took it."""

    text: str  # of its file
    planned_s: float


@contextmanager
def step_source(local: RankState, first: int = 0) -> Iterator[Iterator[StepTasks]]:
    """Iterator over the steps of a run from number `first`, the same on every rank."""
    plan, options = local.plan, local.options
    count, folder = options.step_count(plan), options.steps_folder(plan)
    own = [*map(StepTasks, local.steps)]
    if folder is None:
        skipped = read_skipped(options.resume)
        numbers = [batch_of(number, skipped) % len(own) for number in range(first, count)]
        loaded = loaded_steps(local, numbers)
        yield (replace(own[number], loaded=next(loaded)) for number in numbers)
        loaded.close()  # ends its workers
        return
    inbox = StepInbox(local.worker, plan, folder, options.data)
    with inbox.locked(first):
        yield inbox.steps(own, first, count)
        inbox.cancel_fetch()


class StepInbox:
    """Access of one rank to the folder of steps."""

    def __init__(self, worker: Worker, plan: Plan, folder: Path, data: Path | None = None) -> None:
        self.first, self.head, self.slots = worker.rank == 0, PlanHead(plan), FolderQueue(folder)
        timeout = timedelta(seconds=2 * STEP_TIMEOUT_S)
        self.group = dist.new_group(backend="gloo", timeout=timeout, group_desc="upcoming steps")
        self.failed = folder / FAILED_FILE
        compared = self.first and data is not None and has_media(data)
        self.samples = open_sample_folder(data) if compared and data else None  # what rank 0 compares steps with
        self.seen = False  # whether a planner was running at some time
        self.over = threading.Event()  # set when the run has ended
        self.broadcasted = False  # whether rank 0 has broadcast the step that is fetched
        self.fetching: StepFetch | None = None

    @contextmanager
    def locked(self, first: int) -> Iterator[None]:
        """On rank 0: locks the folder for this run, and resets which steps were taken to those before `first`."""
        if not self.first:
            yield
            return
        with hold_lock(self.slots.folder / RUN_LOCK, "another run takes steps from this folder"):
            self.slots.reset_taken(first)
            yield

    def steps(self, own: list[StepTasks], first: int, count: int) -> Iterator[StepTasks]:
        """Yields steps; while one is trained, the next one is fetched."""
        self.prefetch(first, own, count)
        for number in range(first, count):
            step = self.fetching.result() if self.fetching else own[number]
            self.prefetch(number + 1, own, count)
            yield step

    def prefetch(self, number: int, own: list[StepTasks], count: int) -> None:
        """Starts fetching a step, if it comes from the folder."""
        self.fetching = StepFetch(self, number) if len(own) <= number < count else None

    def cancel_fetch(self) -> None:
        """Cancels a fetch when a run stops early; rank 0 broadcasts None unless it has broadcast the step."""
        if self.fetching:
            self.over.set()
            self.fetching.join()
            if self.first and not self.broadcasted:
                self.broadcast(None)

    def broadcast(self, step: PlannedStep | None) -> PlannedStep | None:
        """What rank 0 broadcasts."""
        self.broadcasted = True
        return broadcast_message(step, PlannedStep | None, group=self.group)

    def fetch(self, number: int) -> StepTasks | None:
        """Takes a step on rank 0 and broadcasts it; None when the run is over."""
        step: PlannedStep | None = None
        self.broadcasted = False
        if self.first:
            slot = self.take(number)
            if slot is None:
                return None
            seconds = files.read(slot / SPENT_FILE, PlanningTime).seconds
            step = PlannedStep(files.read_text(slot / STEP_FILE), seconds)
        step = self.broadcast(step)
        if step is None:
            return None
        name = f"{self.slots.folder} (step {number})"
        plan = self.head.complete_plan(files.parse(step.text, StepFile, name), name)
        require_executable(plan)
        if self.samples:
            require_same_samples(plan, self.samples)
        return StepTasks(expand(plan), plan, step.planned_s)

    def take(self, number: int) -> Path | None:
        """Waits for a step and takes it; None when the run ended meanwhile. Raises RunFailed when no planner runs."""
        begun = last_alive = time.monotonic()
        while not self.over.is_set():
            alive = is_locked(self.slots.folder / PLANNER_LOCK)  # first: what it offered before it ended is found
            self.seen |= alive
            slot = self.slots.take(number)
            if slot:
                return slot
            if alive:
                last_alive = time.monotonic()
            elif self.failed.exists():
                raise self.no_step(number, files.read_text(self.failed).partition("\n")[0])
            elif time.monotonic() - last_alive > (PLANNER_RESTART_S if self.seen else PLANNER_START_S):
                raise self.no_step(number, "the planner has ended" if self.seen else "there is no planner")
            if time.monotonic() - begun > STEP_TIMEOUT_S:
                raise self.no_step(number, "the planner is running and offered no step")
            time.sleep(POLL_S)
        return None

    def no_step(self, number: int, why: str) -> RunFailed:
        fix = "its error is above; with a launcher of your own, start python -m planner.online PLAN"
        return RunFailed(f"step {number} was not planned: {why}", where=str(self.slots.folder), fix=fix)


class StepFetch(threading.Thread):
    """Thread that fetches a step. It is a daemon: a rank that fails does not wait for it."""

    def __init__(self, inbox: StepInbox, number: int) -> None:
        super().__init__(name=f"step {number}", daemon=True)
        self.inbox, self.number = inbox, number
        self.step: StepTasks | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.step = self.inbox.fetch(self.number)
        except BaseException as error:
            self.error = error

    def result(self) -> StepTasks:
        """Waits for the step, and notes how long; 0 if it had arrived already."""
        begun = time.perf_counter()
        ready = not self.is_alive()
        self.join()
        waited = 0.0 if ready else time.perf_counter() - begun
        if self.error:
            raise self.error
        assert self.step is not None, "None only after the run is over"
        return replace(self.step, waited_s=waited)
