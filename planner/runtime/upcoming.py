"""Where a run's steps come from: its plan, over and over; or a folder, each planned while earlier ones train.

The first rank takes a step out of the folder and sends it to the others, beside the step before it, over a group of its
own: ranks that find it there when they need it have waited for nothing.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from planner import files
from planner.errors import RunFailed
from planner.files.lock import held, hold
from planner.files.slots import Slots
from planner.launch.worker import Worker
from planner.plan.expand import expand
from planner.plan.model import Plan
from planner.plan.steps import FAILED, PLANNER_LOCK, RUN_LOCK, SPENT, STEP, Head, Spent, StepFile
from planner.plan.task import Task
from planner.runtime.options import RunOptions
from planner.runtime.runnable import require_known

POLL_S = 0.002  # between two tries to take a step that is not there
START_S = 30.0  # how long a planner may take to appear
RESTART_S = 3.0  # how long one that ended may take to be back
PATIENCE_S = 600.0  # how long one may live without giving a step


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The tasks of the next step, what planning them took, and how long this rank waited for them."""

    tasks: tuple[Task, ...]
    planned_s: float | None = None  # None: planned before the run
    waited_s: float = 0.0


@contextmanager
def upcoming(worker: Worker, plan: Plan, options: RunOptions, first: int = 0) -> Iterator[Iterator[Upcoming]]:
    """The steps of a run from the `first`, one by one, the same on every rank."""
    count, folder = options.count(plan), options.steps_folder(plan)
    own = [Upcoming(expand(plan, number)) for number in range(len(plan.steps))]
    if folder is None:
        yield (own[number % len(own)] for number in range(first, count))
        return
    inbox = Inbox(worker, plan, folder)
    with inbox.opened(first):
        yield inbox.steps(own, first, count)
        inbox.settle()


class Inbox:
    """One rank's end of the folder of steps."""

    def __init__(self, worker: Worker, plan: Plan, folder: Path) -> None:
        self.first, self.head, self.slots = worker.rank == 0, Head(plan), Slots(folder)
        timeout = timedelta(seconds=2 * PATIENCE_S)
        self.group = dist.new_group(backend="gloo", timeout=timeout, group_desc="upcoming steps")
        self.failed = folder / FAILED
        self.seen = False  # that somebody plans
        self.over = threading.Event()  # the run has ended
        self.told = False  # all ranks of the step that is fetched
        self.fetching: Fetching | None = None

    @contextmanager
    def opened(self, first: int) -> Iterator[None]:
        """On the first rank: nobody else takes from the folder, and nothing has been taken but what came before."""
        if not self.first:
            yield
            return
        with hold(self.slots.folder / RUN_LOCK, "another run takes steps from this folder"):
            self.slots.rewind(first)
            yield

    def steps(self, own: list[Upcoming], first: int, count: int) -> Iterator[Upcoming]:
        """While one step is worked on, the next one is fetched."""
        self.ask(first, own, count)
        for number in range(first, count):
            step = self.fetching.result() if self.fetching else own[number]
            self.ask(number + 1, own, count)
            yield step

    def ask(self, number: int, own: list[Upcoming], count: int) -> None:
        """For a step, if it is one of the folder's."""
        self.fetching = Fetching(self, number) if len(own) <= number < count else None

    def settle(self) -> None:
        """A run that ends early needs no further step, be it late or wrong: the others hear so from the first rank, if
        they have not heard of the step itself.
        """
        if self.fetching:
            self.over.set()
            self.fetching.join()
            if self.first and not self.told:
                self.tell([None])

    def tell(self, said: list[Any]) -> None:
        """What the first rank says, on all of them."""
        self.told = True
        dist.broadcast_object_list(said, src=0, group=self.group)

    def fetch(self, number: int) -> Upcoming | None:
        """Take the step on the first rank, and have it on all; none when the run is over."""
        said: list[Any] = [None]
        self.told = False
        if self.first:
            slot = self.take(number)
            if slot is None:
                return None
            said = [(files.read_text(slot / STEP), files.read(slot / SPENT, Spent).seconds)]
        self.tell(said)
        if said[0] is None:
            return None
        text, seconds = said[0]
        name = f"{self.slots.folder} (step {number})"
        whole = self.head.whole(files.parse(text, StepFile, name), name)
        require_known(whole)
        return Upcoming(expand(whole), seconds)

    def take(self, number: int) -> Path | None:
        """None when the run ended meanwhile. Raises RunFailed when nobody is there who would plan it."""
        begun = gone = time.monotonic()
        while not self.over.is_set():
            alive = held(self.slots.folder / PLANNER_LOCK)  # asked first: what it offered before it ended is there
            self.seen |= alive
            slot = self.slots.take(number)
            if slot:
                return slot
            if alive:
                gone = time.monotonic()
            elif self.failed.exists():
                raise self.nothing(number, files.read_text(self.failed).partition("\n")[0])
            elif time.monotonic() - gone > (RESTART_S if self.seen else START_S):
                raise self.nothing(number, "no planner is left" if self.seen else "there is no planner")
            if time.monotonic() - begun > PATIENCE_S:
                raise self.nothing(number, "the planner lives and gave nothing")
            time.sleep(POLL_S)
        return None

    def nothing(self, number: int, why: str) -> RunFailed:
        fix = "what ended it is above; beside a launcher of your own, start python -m planner.online PLAN"
        return RunFailed(f"nobody planned step {number}: {why}", where=str(self.slots.folder), fix=fix)


class Fetching(threading.Thread):
    """A step on its way. The thread is a daemon: a rank that fails leaves without it."""

    def __init__(self, inbox: Inbox, number: int) -> None:
        super().__init__(name=f"step {number}", daemon=True)
        self.inbox, self.number = inbox, number
        self.found: Upcoming | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self.inbox.fetch(self.number)
        except BaseException as error:
            self.error = error

    def result(self) -> Upcoming:
        """Wait for it, and say how long that was; what is there already was not waited for."""
        begun = time.perf_counter()
        there = not self.is_alive()
        self.join()
        waited = 0.0 if there else time.perf_counter() - begun
        if self.error:
            raise self.error
        assert self.found is not None, "fetched, or failed: a run that is over asks for none"
        return Upcoming(self.found.tasks, self.found.planned_s, waited)
