"""Runs a plan on this machine: starts its ranks as local processes and watches them."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec

from planner.errors import InputError, RunFailed
from planner.launch import Supervision, launch
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.resume_checks import resolve_resume
from planner.runtime.hang_limits import hang_limits
from planner.runtime.health.rollback import FIX, joined, roll_back
from planner.runtime.health.spikes import HealthNote
from planner.runtime.preflight.preflight_checks import (
    errors_in_plan_file,
    require_devices,
    require_outputs,
    require_runnable,
)
from planner.runtime.run_options import Progress, RunOptions
from planner.runtime.run_result import REASON_OF_SIGNAL, RunResult

LOG = logging.getLogger(__name__)
STACKS_FILE = "stacks.txt"  # beside the checkpoint, when a rank hangs
MOST_ROLLBACKS = 5  # in one run: what spikes again and again is no matter of a few batches


def run(
    plan: Plan,
    options: RunOptions,
    on_progress: Callable[[Progress], None],
    task_seconds: Mapping[str, float] | None = None,
) -> RunResult:
    """Trains with the plan; `task_seconds`: what its tasks are predicted to take. Raises InputError when it cannot run
    here, RunFailed naming the rank that failed or hangs.

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
    require_runnable(plan, options)
    require_outputs(options)
    with errors_in_plan_file(name):
        kind = require_devices(plan, plan.size)
    from planner.runtime.execute.training_loop import run_on_rank

    signals: list[int] = []

    def train(options: RunOptions) -> RunResult:
        results = launch(
            run_on_rank,
            plan.size,
            plan,
            options,
            on_message=lambda _, message: hear(message, on_progress),
            kind=kind,
            supervision=Supervision(
                signals.append,
                hang_limits(task_seconds or {}, options.hang_seconds),
                options.save and options.save / STACKS_FILE,
            ),
        )
        result: RunResult = results[0]
        return result

    result = train(options)
    for _ in range(MOST_ROLLBACKS):
        if result.spike is None or signals:
            break
        options = roll_back(options, result.spike)
        result = joined(result, train(options))
    if result.spike is not None and not signals:
        raise RunFailed(f"the loss spiked for good again, {MOST_ROLLBACKS} rollbacks later", fix=FIX)
    stopped = signals and result.stop_reason in ("interrupt", "spike")
    return replace(result, stop_reason=REASON_OF_SIGNAL[signals[0]], spike=None) if stopped else result


def hear(message: Progress | HealthNote, on_progress: Callable[[Progress], None]) -> None:
    """What the first rank reports: progress for the caller, notes for the log."""
    if isinstance(message, HealthNote):
        LOG.warning("step %d: %s", message.step, message.text)
    else:
        on_progress(message)
