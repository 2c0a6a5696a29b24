"""One rank of a run that another launcher started: `torchrun --nproc-per-node 4 -m planner.runtime plan.yaml`.

Rank 0 prints one JSON object per line: one for each step, then one for the run.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

from planner import files
from planner.errors import InputError, PlannerError, RunFailed
from planner.launch import worker_from_environment
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.resume_checks import resolve_resume
from planner.runtime.health.rollback import await_note, read_skipped, roll_back
from planner.runtime.health.spikes import HealthNote
from planner.runtime.measure.metrics_file import finite_or_none
from planner.runtime.parity.parity_tolerance import parity_failure, parity_tolerance, within_tolerance
from planner.runtime.preflight.preflight_checks import (
    errors_in_plan_file,
    require_devices,
    require_outputs,
    require_runnable,
    unenforced_shares,
)
from planner.runtime.run_options import LearningRateSchedule, RunOptions, TrainingOptions
from planner.runtime.run_result import ParityErrors, RunResult
from planner.specs.run_option_help import OPTION_HELP, RUN_DTYPES, OnSpike
from planner.units import parse_duration


def main() -> int:
    arguments = vars(parser().parse_args())
    try:
        run_rank(arguments.pop("plan"), options_in(arguments))
    except PlannerError as error:
        if not isinstance(error, InputError) or is_first_rank():  # all ranks raise the same InputError
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def is_first_rank() -> bool:
    return os.environ.get("RANK", "0") == "0"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m planner.runtime", description=__doc__, argument_default=argparse.SUPPRESS
    )
    options.add_argument("plan", help="A plan file.")

    def add(flag: str, **how: Any) -> None:
        options.add_argument(flag, help=OPTION_HELP[flag.removeprefix("--").replace("-", "_")], **how)

    add("--steps", type=int)
    add("--verify", action="store_true")
    add("--dtype", choices=RUN_DTYPES)
    add("--data", type=Path, metavar="DIR")
    add("--weights", type=Path, metavar="DIR")
    add("--allow-different", action="extend", nargs=1, metavar="KEY")
    add("--seed", type=int)
    add("--max-time", dest="max_seconds", type=parse_duration, metavar="DURATION")
    add("--metrics", type=Path, metavar="FILE")
    add("--save", type=Path, metavar="DIR")
    add("--save-every", type=int, metavar="STEPS")
    add("--keep", type=int, metavar="COUNT")
    add("--keep-every", type=int, metavar="STEPS")
    add("--resume", type=Path, metavar="DIR")
    add("--elastic", action="store_true")
    add("--features", type=Path, metavar="DIR")
    add("--on-spike", choices=get_args(OnSpike))
    add("--spike-steps", type=int, metavar="STEPS")
    add("--check-replicas", type=int, metavar="STEPS")
    add("--record", type=Path, metavar="DIR")
    add("--memory-snapshot", type=Path, metavar="DIR")
    add("--learning-rate", type=float)  # from here on the fields of `TrainingOptions`, by their names
    add("--schedule", choices=get_args(LearningRateSchedule))
    add("--warmup", type=int, metavar="STEPS")
    add("--clip", type=float, metavar="NORM")
    add("--betas", type=float, nargs=2)
    add("--weight-decay", dest="decay", type=float)
    return options


def options_in(given: dict[str, Any]) -> RunOptions:
    """Options of the run from the parsed arguments; those that are missing have their defaults."""
    names = {field.name for field in fields(TrainingOptions)}
    training = {name: value for name, value in given.items() if name in names}
    if "betas" in training:
        training["betas"] = tuple(training["betas"])
    others = {name: value for name, value in given.items() if name not in names}
    others |= {name: tuple(others[name]) for name in ("allow_different",) if name in others}
    return RunOptions(**others, training=TrainingOptions(**training))


def run_rank(path: str, options: RunOptions) -> None:
    """Runs this process's rank of the plan. Raises InputError when the number of processes is not that of the ranks."""
    if options.elastic:
        message = "torchrun starts ranks again, and as many as it was told to"
        fix = "torchrun --max-restarts with --resume and --save of one folder; or planner run --elastic on one machine"
        raise InputError(message, where="--elastic", fix=fix)
    plan = files.read(path, Plan)
    require_legal(plan, path)
    options = resolve_resume(replace(options, base=Path(path).parent, source=path))
    require_runnable(plan, options)
    if is_first_rank():
        require_outputs(options)
        if warning := unenforced_shares(plan):
            print(warning, file=sys.stderr)
    with errors_in_plan_file(path):
        kind = require_devices(plan, 1)
    from planner.runtime.execute.training_loop import run_on_rank

    worker = worker_from_environment(kind, send=print_progress)
    if worker.world_size != plan.size:
        more = "more" if plan.size > worker.world_size else "fewer"
        raise InputError(
            f"the plan has {more} ranks than there are processes: {plan.size} and {worker.world_size}",
            where=f"{path} (ranks)",
            fix=f"torchrun --nproc-per-node {plan.size}, or plan the job for {worker.world_size} ranks",
        )
    skipped = read_skipped(options.save)
    result = run_on_rank(worker, plan, options)
    if result and result.stop_reason == "spike":
        if result.spike:
            roll_back(options, result.spike)
        else:
            await_note(options.save, skipped)  # of rank 0, whose torchrun ends it where another rank fails
        fix = "torchrun --max-restarts with --resume and --save of one folder does so by itself"
        raise RunFailed("the loss spiked for good: the run goes on from its last checkpoint when resumed", fix=fix)
    if result:
        print(json.dumps(summary(result, plan, options)), flush=True)
        require_parity(result, plan, options)


def require_parity(result: RunResult, plan: Plan, options: RunOptions) -> None:
    """Raises RunFailed where loss or gradients differ from one process by more than the tolerance."""
    if result.verify and not within_tolerance(result.verify, parity_tolerance(plan, options.dtype)):
        raise parity_failure(result.verify, parity_tolerance(plan, options.dtype))


def print_progress(kind: str, value: Any) -> None:
    """Prints what the worker of rank 0 reports, steps and notes, on standard output."""
    if kind == "message":
        print(json.dumps(value._asdict() if isinstance(value, HealthNote) else asdict(value)), flush=True)


def verification(verified: ParityErrors, plan: Plan, options: RunOptions) -> dict[str, Any]:
    """Parity errors as JSON; those that are not finite are null."""
    errors = {name: finite_or_none(getattr(verified, name)) for name in ("loss_rel_err", "grad_rel_err")}
    return {**asdict(verified), **errors, "within": within_tolerance(verified, parity_tolerance(plan, options.dtype))}


def summary(result: RunResult, plan: Plan, options: RunOptions) -> dict[str, Any]:
    """The result of a run as JSON, without its task records."""
    verified = result.verify
    return {
        "machine": result.machine,
        "torch": result.torch,
        "ranks": result.ranks,
        "steps_before": result.steps_before,
        "step_seconds": [step.seconds for step in result.steps],
        "losses": [step.loss for step in result.steps],
        "ended": result.stop_reason,
        "peak_bytes": result.steps[-1].peak_bytes,
        "memory_bytes": [asdict(rank) for rank in result.steps[-1].memory] or None,
        "sent_bytes": result.steps[-1].sent_bytes,
        "features": [step.features._asdict() for step in result.steps],
        "planned": [step.planning and asdict(step.planning) for step in result.steps],
        "verify": verified and verification(verified, plan, options),
    }


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # tearing torch down sometimes aborts over one of its threads that still runs
