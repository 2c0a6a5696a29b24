"""Runs a plan on this machine: starts its ranks as local processes and watches them."""

from collections.abc import Callable
from importlib.util import find_spec

from planner.errors import InputError
from planner.launch.processes import launch
from planner.plan.legal import require_legal
from planner.plan.model import Plan
from planner.runtime.going_on import resolve_resume
from planner.runtime.options import Progress, RunOptions
from planner.runtime.result import RunResult
from planner.runtime.runnable import errors_in_plan_file, require_devices, require_outputs, require_runnable


def run(plan: Plan, options: RunOptions, on_progress: Callable[[Progress], None]) -> RunResult:
    """Trains with the plan. Raises InputError when it cannot run here, RunFailed naming the rank that failed.

    One-time work (imports, connections, the first pass through the model) is over before the first step is timed, see
    `runtime/execute/warmup.py`.
    """
    if find_spec("torch") is None:
        raise InputError("running a plan needs torch, which is not installed", fix="pip install 'planner[torch]'")
    name = options.source or plan.name
    require_legal(plan, name)
    options = resolve_resume(options)
    require_runnable(plan, options)
    require_outputs(options)
    with errors_in_plan_file(name):
        kind = require_devices(plan, plan.size)
    from planner.runtime.worker import run_on_rank

    results = launch(
        run_on_rank, plan.size, plan, options, on_message=lambda _, progress: on_progress(progress), kind=kind, graceful_interrupt=True
    )
    result: RunResult = results[0]
    return result
