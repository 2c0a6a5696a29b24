"""Run a plan on this machine: its ranks as local processes, watched."""

from collections.abc import Callable

from planner.errors import InputError
from planner.launch.processes import launch
from planner.plan.legal import require_legal
from planner.plan.model import Plan
from planner.runtime.options import Progress, RunOptions
from planner.runtime.result import RunResult
from planner.runtime.runnable import require_machine, require_runnable


def run(plan: Plan, options: RunOptions, on_progress: Callable[[Progress], None]) -> RunResult:
    """Train as the plan says. Raises InputError when it cannot run here, RunFailed naming the rank that failed.

    What happens only once (imports, connections, the first pass through the model) is over before the first step is
    timed, see `runtime/warmup.py`.
    """
    require_legal(plan, plan.name)
    try:
        from planner.runtime.worker import body
    except ImportError as error:
        raise InputError(f"running a plan needs torch: {error}", fix="pip install 'planner[torch]'") from error
    require_runnable(plan, options)
    options.count(plan)
    kind = require_machine(plan, plan.size)
    results = launch(
        body, plan.size, plan, options, on_message=lambda _, progress: on_progress(progress), kind=kind, heed=True
    )
    result: RunResult = results[0]
    return result
