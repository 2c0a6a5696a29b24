"""A run that ranks may leave and join: planned anew for the devices that there are, it goes on from its checkpoint.

    SAVED/devices.txt    0-1,3

Each part of it, from one change to the next, is a run by itself, of a plan that anybody could have started. Where ranks
are lost, the steps since the checkpoint are trained again. Where `devices.txt` changes, none are: ranks save behind the
step in which they hear of it. That file is one line, which the run's launcher reads twice a second, and writes without
the devices of ranks that were lost; whoever has a device back adds it again.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from planner import pipeline
from planner.errors import Infeasible, InputError, RanksLost
from planner.files import path_exists, read_text, write_text
from planner.ledger import ComparedRun
from planner.online import inputs_of_plan, plan_anew
from planner.plan.plan_file import Plan
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs
from planner.units import duration, plural

if TYPE_CHECKING:
    from planner.runtime import LocalDevices, Progress, RunOptions

LOG = logging.getLogger(__name__)
DEVICE_FILE = "devices.txt"
PLAN_FILE = "plan.yaml"  # beside the checkpoint: the plan that the run went on with
MOST_STEPS = 64  # of a plan: all are planned anew, while nobody trains
OnStep = Callable[["Progress"], None]
OnNote = Callable[[str], None]
Train = Callable[[Plan, "RunOptions", str, "LocalDevices", OnStep], ComparedRun]  # one part; the text names the job


class DeviceFile:
    """The file `devices.txt` of a run, whose job is for `count` devices."""

    def __init__(self, folder: Path, count: int) -> None:
        self.path, self.count = folder / DEVICE_FILE, count
        self.refused = ""  # why the file was last refused

    def begin(self, ranks: int) -> Ranks:
        """The devices of a run that begins on so many ranks: as written before, or the first. Raises InputError."""
        if not path_exists(self.path, str(self.path)):
            self.write(Ranks(range(ranks)))
        return self.read()

    def write(self, devices: Ranks) -> None:
        """Write the devices that are left. Raises InputError."""
        write_text(self.path, f"{devices}\n", durable=True)

    def read(self) -> Ranks:
        """The devices that the run may have. Raises InputError."""
        text = read_text(self.path).strip()
        try:
            devices = Ranks.from_file(text)
        except ValueError:
            devices = Ranks()
        if not devices or devices[-1] >= self.count:
            fix = f"such as 0-{self.count - 1}: the job has {plural(self.count, 'device')}"
            raise InputError(f"`{text[:40]}` is no choice of devices", where=str(self.path), fix=fix)
        return devices

    def now(self, devices: Ranks) -> Ranks:
        """The devices that the run may have now; where the file is refused, which is logged once, those that it has."""
        try:
            return self.read()
        except InputError as error:
            if self.refused != str(error):
                self.refused = str(error)
                LOG.warning("%s: %s", error.where, error.message)
            return devices

    def differs_from(self, devices: Ranks) -> bool:
        """Whether the run should have others than these."""
        return self.now(devices) != devices


@dataclass(frozen=True, slots=True)
class Part:
    """What is trained from one change to the next."""

    plan: Plan
    options: "RunOptions"
    job: str  # path of its file
    devices: Ranks  # that the run may have

    @property
    def used(self) -> Ranks:
        """The device of each rank."""
        return Ranks(self.devices[: self.plan.size])


@dataclass(frozen=True, slots=True)
class Change:
    """Why a part ended before its last step."""

    because: str
    lost: tuple[int, ...]  # devices whose ranks were lost; empty: none were
    steps_done: int
    noticed: float  # time.monotonic()


@dataclass(frozen=True, slots=True)
class Continuation:
    """How a run went on behind a change."""

    change: Change
    resumed_from: int  # steps of the checkpoint; 0: it began again
    devices: tuple[int, ...]  # by rank
    planning_s: float


@dataclass(frozen=True, slots=True)
class ElasticRun:
    """A run whose ranks may have changed: what was measured of its last part, and what led there."""

    ran: ComparedRun
    options: "RunOptions"  # of the last part
    job: str | None
    continuations: tuple[Continuation, ...]


class StepWatch:
    """Hears the steps of a part, and says when the first one behind a change is done."""

    def __init__(self, on_note: OnNote, change: Change | None, done: int) -> None:
        self.on_note, self.change, self.done = on_note, change, done

    def hear(self, progress: "Progress") -> None:
        self.done = progress.step
        if self.change:
            paused = duration(time.monotonic() - self.change.noticed)
            self.on_note(f"step {progress.step} is done, {paused} after the change was noticed")
        self.change = None


def run_elastic(plan: Plan, options: "RunOptions", job: str | None, train: Train, on_note: OnNote) -> ElasticRun:
    """Train with a plan until all steps are done, whatever ranks are lost or come back meanwhile; `job`: its job, if
    not beside it. Raises InputError where it cannot be planned anew, Infeasible where no ranks that are left can go on,
    RunFailed as any run.
    """
    from planner.runtime import saved_steps

    inputs = require_elastic(plan, options, job)
    assert options.save is not None, "require_elastic asks for it"
    began, file = time.monotonic(), DeviceFile(options.save, inputs.cluster.size)
    part, continued = Part(plan, options, str(inputs.file), file.begin(plan.size)), list[Continuation]()
    done = saved_steps(options.resume) or 0
    change = None if len(part.devices) == plan.size else devices_changed(part.devices, file, done)
    while True:
        if change:
            on_note(change.because)
            left = options.max_seconds and max(1.0, round(options.max_seconds - (time.monotonic() - began)))
            part = replace(part, devices=file.now(part.devices), options=replace(part.options, max_seconds=left))
            part, continuation = go_on(part, change, inputs)
            continued.append(continuation)
            done = continuation.resumed_from
            for text in notes_of(continuation, part):
                on_note(text)
        ended = train_part(part, train, file, StepWatch(on_note, change, done))
        if isinstance(ended, ComparedRun):
            last = replace(part.options, max_seconds=options.max_seconds)
            return ElasticRun(ended, last, part.job, tuple(continued))
        change = ended


def require_elastic(plan: Plan, options: "RunOptions", job: str | None) -> Inputs:
    """What the plan was made from, and a run of it would be planned anew from. Raises InputError."""
    from planner.runtime import require_quick_checks, resolve_resume

    if {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        fix = "run it without torchrun; or python -m planner.runtime under torchrun --max-restarts"
        raise InputError("another launcher starts the ranks", where="--elastic", fix=fix)
    require_quick_checks(plan, resolve_resume(options))
    if len(plan.steps) > MOST_STEPS:
        message = f"all {len(plan.steps)} steps of the plan would be planned anew while nobody trains"
        fix = f"a job with planning: per_batch, or a plan of at most {MOST_STEPS} steps"
        raise InputError(message, where=f"{options.source} (steps)", fix=fix)
    inputs = inputs_of_plan(plan, options.base, job)
    own = {sample: size for batch in inputs.batches for sample, size in batch.items.items()}
    if own != plan.uses.items.get(inputs.module):
        fix = f"planner solve {inputs.file} again, without --mix"
        message = "its job gives other samples than the plan has"
        raise InputError(message, where=f"{options.source} (uses.items)", fix=fix)
    return inputs


def train_part(part: Part, train: Train, file: DeviceFile, watch: StepWatch) -> ComparedRun | Change:
    """Train until all is done, or ranks are lost, the run may have other devices, or its checkpoint is damaged and an
    earlier one was kept, which takes its place. Raises the RanksLost where none are left, or nothing is to be trained.
    """
    from planner.runtime import DamagedCheckpoint, LocalDevices, put_back_kept, saved_steps

    devices = LocalDevices(part.used, partial(file.differs_from, part.devices))
    try:
        ran = train(part.plan, part.options, part.job, devices, watch.hear)
    except RanksLost as error:
        lost = tuple(part.used[rank] for rank in error.ranks)
        left = Ranks(device for device in part.devices if device not in lost)
        all_done = (saved_steps(part.options.save) or 0) >= part.options.step_count(part.plan)
        if not left or all_done:
            raise
        file.write(left)
        return Change(f"{error.message} (at {error.where})", lost, watch.done, time.monotonic())
    except DamagedCheckpoint as error:
        folder = part.options.save
        if folder is None or part.options.resume != folder or not put_back_kept(folder):
            raise
        return Change(f"{error.message} (at {error.where})", (), watch.done, time.monotonic())
    done = ran.steps_before + len(ran.losses)
    return devices_changed(file.now(part.devices), file, done) if ran.stop_reason == "devices" else ran


def devices_changed(devices: Ranks, file: DeviceFile, steps_done: int) -> Change:
    """The change that somebody asked for."""
    return Change(f"{file.path} says devices {devices}", (), steps_done, time.monotonic())


def go_on(part: Part, change: Change, inputs: Inputs) -> tuple[Part, Continuation]:
    """The part planned anew for its devices, from the newest checkpoint on. Raises Infeasible."""
    from planner.runtime import saved_steps

    folder = part.options.save
    assert folder is not None, "elastic runs save"
    resume = part.options.resume if saved_steps(folder) is None else folder
    steps = saved_steps(resume) or 0
    begun = time.monotonic()
    try:
        plan = plan_anew(inputs, part.devices, folder / PLAN_FILE, pipeline.plan_of)
    except Infeasible as error:
        kept = f"; the checkpoint after {plural(steps, 'step')} is in {resume}" if steps else ""
        raise Infeasible(f"{change.because}; {error.message}", where=error.where, fix=f"{error.fix}{kept}") from error
    options = replace(part.options, resume=resume, resumes=True, base=folder, source=str(folder / PLAN_FILE))
    onward = replace(part, plan=plan, options=options)
    return onward, Continuation(change, steps, onward.used, time.monotonic() - begun)


def notes_of(continuation: Continuation, part: Part) -> tuple[str, ...]:
    """How the run goes on, and the command that would, if this launcher died."""
    from planner.runtime import resume_command

    resumed = continuation.resumed_from
    again, predicted = continuation.change.steps_done - resumed, part.plan.prediction.step_seconds
    ranks = f"{plural(len(continuation.devices), 'rank')}, devices {Ranks(continuation.devices)}"
    place = f"from step {resumed}" if resumed else "from the beginning"
    repeated = f" ({plural(again, 'step')} trained again)" if again else ""
    step = f", {duration(predicted / len(part.plan.steps))} a step predicted" if predicted else ""
    line = f"going on with {ranks}, {place}{repeated}; planned in {duration(continuation.planning_s)}{step}"
    return (line, f"  {resume_command(part.options, part.job)}") if resumed else (line,)
