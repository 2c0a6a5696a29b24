"""Runs a plan on this machine: starts its ranks as local processes and watches them."""

from collections.abc import Callable
from importlib.util import find_spec

from planner.errors import InputError
from planner.launch.processes import launch
from planner.plan.legal import require_legal
from planner.plan.model import Plan
from planner.runtime.going_on import taken_up
from planner.runtime.options import Progress, RunOptions
from planner.runtime.result import RunResult
from planner.runtime.runnable import located, require_machine, require_outputs, require_runnable


def run(plan: Plan, options: RunOptions, on_progress: Callable[[Progress], None]) -> RunResult:
    """Trains with the plan. Raises InputError when it cannot run here, RunFailed naming the rank that failed.

    One-time work (imports, connections, the first pass through the model) is over before the first step is timed, see
    `runtime/execute/warmup.py`.
    """
    if find_spec("torch") is None:
        raise InputError("running a plan needs torch, which is not installed", fix="pip install 'planner[torch]'")
    name = options.source or plan.name
    require_legal(plan, name)
    options = taken_up(options)
    require_runnable(plan, options)
    require_outputs(options)
    with located(name):
        kind = require_machine(plan, plan.size)
    from planner.runtime.worker import body

    results = launch(
        body, plan.size, plan, options, on_message=lambda _, progress: on_progress(progress), kind=kind, heed=True
    )
    result: RunResult = results[0]
    return result
