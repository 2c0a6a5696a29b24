"""Runs a plan on this machine: starts its ranks as local processes and watches that they go on."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

from planner.errors import InputError, RanksLost, RunFailed
from planner.launch import BegunTask, HangLimits, Supervision, launch, start_fork_server
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.resume_checks import resolve_resume
from planner.runtime.health.rollback import FIX, joined, roll_back
from planner.runtime.health.spikes import HealthNote
from planner.runtime.preflight.preflight_checks import (
    errors_in_plan_file,
    require_devices,
    require_outputs,
    require_quick_checks,
    require_runnable,
)
from planner.runtime.run_options import LocalDevices, Progress, RunOptions
from planner.runtime.run_result import REASON_OF_SIGNAL, RunResult, StopReason

LOG = logging.getLogger(__name__)
STACKS_FILE = "stacks.txt"  # beside the checkpoint, when a rank hangs
TRAINING_LOOP = "planner.runtime.execute.training_loop"
MOST_ROLLBACKS = 5  # in one run: what spikes again and again is no matter of a few batches
LEAST_S = 8.0  # any task may take so long, and a process be stopped
PREDICTED_TIMES = 4.0  # or so many times its prediction
FIRST_STEP_S = 60.0  # more in the first step of a run, in which kernels are chosen and memory is mapped


def run(
    plan: Plan,
    options: RunOptions,
    on_progress: Callable[[Progress], None],
    task_seconds: Mapping[str, float] | None = None,
    devices: LocalDevices | None = None,
) -> RunResult:
    """Trains with the plan; `task_seconds`: what its tasks are predicted to take; `devices`: None for the first ones of
    this machine. Raises InputError when it cannot run here, RunFailed naming the rank that failed or hangs: RanksLost
    where its process is gone or does not go on, unless a signal came before.

    One-time work (imports, connections, the first pass through the model) is over before the first step is timed, see
    `runtime/execute/warmup.py`.
    """
    if find_spec("torch") is None:
        raise InputError(
            "running a plan needs torch, which is not installed",
            fix="pip install '.[torch]' in the folder of planner's source",
        )
    name = options.source or plan.name
    require_legal(plan, name)
    options = resolve_resume(options)
    require_quick_checks(plan, options)  # what they refuse starts no process
    start_fork_server(TRAINING_LOOP)  # while the checks that follow import torch, too
    require_runnable(plan, options)
    require_outputs(options)
    with errors_in_plan_file(name):
        kind = require_devices(plan, max(devices.numbers) + 1 if devices else plan.size)
    from planner.runtime.execute.training_loop import run_on_rank

    asked = AskedToEnd(devices)

    def train(options: RunOptions) -> RunResult:
        results = launch(
            run_on_rank,
            plan.size,
            plan,
            options,
            on_message=lambda _, message: hear(message, on_progress),
            kind=kind,
            supervision=Supervision(
                asked.signals.append,
                hang_limits(task_seconds or {}, options.hang_seconds),
                options.save and options.save / STACKS_FILE,
                asked.for_devices,
                devices.numbers if devices else (),
            ),
        )
        result: RunResult = results[0]
        return result

    try:
        return train_and_roll_back(train, options, asked)
    except RanksLost as lost:
        if asked.signals:  # whoever ends the job may end ranks first
            raise RunFailed(lost.message, where=lost.where, fix=lost.fix) from lost
        raise


@dataclass(slots=True)
class AskedToEnd:
    """What asked a run to end behind its step."""

    devices: LocalDevices | None
    signals: list[int] = field(default_factory=list)
    others: bool = False  # whether it should have other devices

    def for_devices(self) -> bool:
        """Whether it should have other devices, or should have had."""
        self.others = self.others or (self.devices is not None and self.devices.changed())
        return self.others

    @property
    def reason(self) -> StopReason | None:
        """The reason that its result says; None: nothing asked."""
        return REASON_OF_SIGNAL[self.signals[0]] if self.signals else "devices" if self.others else None


def train_and_roll_back(train: Callable[[RunOptions], RunResult], options: RunOptions, asked: AskedToEnd) -> RunResult:
    """Train, and behind each spike again from the last checkpoint. Raises RunFailed where the loss spikes for good."""
    result = train(options)
    for _ in range(MOST_ROLLBACKS):
        if result.spike is None or asked.reason:
            break
        options = roll_back(options, result.spike)
        result = joined(result, train(options))
    if result.spike is not None and not asked.reason:
        raise RunFailed(f"the loss spiked for good again, {MOST_ROLLBACKS} rollbacks later", fix=FIX)
    if asked.reason is None or result.stop_reason not in ("interrupt", "spike"):
        return result
    return replace(result, stop_reason=asked.reason, spike=None)


def hear(message: Progress | HealthNote, on_progress: Callable[[Progress], None]) -> None:
    """What the first rank reports: progress for the caller, notes for the log."""
    if isinstance(message, HealthNote):
        LOG.warning("step %d: %s", message.step, message.text)
    else:
        on_progress(message)


def hang_limits(predicted: Mapping[str, float], given_s: float | None) -> HangLimits:
    """Limits where tasks are predicted to take so many seconds, by id; `given_s`: in their place.

    What is no task of the plan has none, as nothing says how long it takes: warm-up, reading items, waiting for a step
    that is planned meanwhile, saving, verification.
    """

    def task_s(begun: BegunTask, first_step: bool) -> float:
        if "/" not in begun.task:
            return math.inf
        seconds = given_s or max(LEAST_S, PREDICTED_TIMES * predicted.get(begun.task, math.inf))
        return seconds + FIRST_STEP_S * first_step

    return HangLimits(given_s or LEAST_S, task_s)
