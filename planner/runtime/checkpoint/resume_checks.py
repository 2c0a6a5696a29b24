"""Checks before launch whether a run can resume from a checkpoint: it must have the same model, options and data."""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from planner.errors import InputError
from planner.files import inside, path_exists
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.checkpoint_index import (
    INDEX_FILE,
    NEW_STATES,
    OTHER_STATES_FOLDER,
    UNACCEPTED,
    CheckpointFile,
    data_digest,
    module_dtypes,
    read_index,
)
from planner.runtime.checkpoint.kept_checkpoints import KEPT
from planner.runtime.resume_command import flag
from planner.runtime.run_options import RunOptions
from planner.specs.base import differences, value_text

WRITTEN = (  # in --save DIR, with what is written for others, and by elastic runs
    *(INDEX_FILE, *OTHER_STATES_FOLDER, NEW_STATES, KEPT, "config.json", "model.safetensors"),
    *("skipped.yaml", "stacks.txt", "devices.txt", "plan.yaml"),
)
SAME_MODEL = "resume with a plan of the same model"


def resolve_resume(options: RunOptions) -> RunOptions:
    """Completes options by the checkpoint to resume from: without `steps`, the run has the total of the checkpoint, if
    any steps are left. Where `save` and `resume` are one folder, a run without a checkpoint there starts from step 0,
    and `weights` count only then. Raises InputError.
    """
    if options.resume is None:
        return options
    saves_here = options.save is not None and same_folder(options.resume, options.save)
    if saves_here and not path_exists(options.resume / INDEX_FILE, f"--resume {options.resume}"):
        return replace(options, resume=None, resumes=True)
    index = read_index(options.resume)
    steps = index.total if options.steps is None and index.total > index.steps else options.steps
    if not saves_here:
        return replace(options, steps=steps, resumes=True)
    return replace(options, steps=steps, weights=None, allow_different=(), resumes=True)


def require_save_folder(options: RunOptions) -> None:
    """Raises InputError where saving would replace anything but this run's own checkpoint."""
    if options.save is None:
        return
    where = f"--save {options.save}"
    if path_exists(options.save, where) and not options.save.is_dir():
        raise InputError("this is no folder", where=where, fix="name a folder, or a path where nothing is")
    for name in WRITTEN:
        inside(options.save, name, where)
    if options.weights is not None and same_folder(options.weights, options.save):
        message = "the weights that the run starts from would be replaced"
        raise InputError(message, where=where, fix="name another folder")
    if options.resume is not None and same_folder(options.resume, options.save):
        return
    if path_exists(options.save / INDEX_FILE, where):
        fix = f"--resume {options.save} to resume from it; or name another folder, or remove this one"
        raise InputError("there is a checkpoint here, and it would be replaced", where=where, fix=fix)
    for side in OTHER_STATES_FOLDER:
        if path_exists(options.save / side, where) and not (options.save / side / UNACCEPTED).exists():
            message = f"{side} is here without its {INDEX_FILE}, and would be replaced"
            raise InputError(message, where=where, fix=f"put {INDEX_FILE} back, name another folder, or remove {side}")


def same_folder(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def require_resumable(plan: Plan, options: RunOptions) -> None:
    """Raises InputError where the checkpoint to resume from has another model, options or data, or leaves no steps."""
    if options.resume is None:
        return
    if options.weights is not None:
        message = "a resumed run has the weights of its checkpoint"
        raise InputError(message, where="--weights", fix="leave it out, or leave out --resume")
    index = read_index(options.resume)
    for message, where, fix in run_differences(index, plan, options):
        raise InputError(message, where=where or f"--resume {options.resume}", fix=fix)
    require_steps_left(plan, options)


def require_steps_left(plan: Plan, options: RunOptions) -> None:
    """Raises InputError where the checkpoint to resume from has done all steps of the run."""
    done = read_index(options.resume).steps if options.resume is not None else 0
    if done >= options.step_count(plan):
        message = f"the checkpoint has done {done} steps, and the run has {options.step_count(plan)} in all"
        raise InputError(message, where="--steps", fix=f"--steps {done + 1}, or more: it counts all of them")


def run_differences(index: CheckpointFile, plan: Plan, options: RunOptions) -> Iterator[tuple[str, str, str]]:
    """Message, place (empty: the checkpoint) and fix of each difference between checkpoint and run."""
    models = {module: plan.uses.models[module] for module in plan.layouts}
    if index.models.keys() != models.keys():
        message = f"the checkpoint has the modules {', '.join(index.models)}; the plan has {', '.join(models)}"
        yield message, "", SAME_MODEL
        return
    for module, spec in models.items():
        for field, before, now in differences(index.models[module], spec, module):
            message = f"`{field}` is {value_text(before)} in the checkpoint and {value_text(now)} in the plan"
            yield message, "", SAME_MODEL
    for name, given in {"seed": options.seed, **asdict(options.training)}.items():
        before = index.seed if name == "seed" else getattr(index.training, name)
        if before != given:
            fix = f"leave {flag(name)} out" if before is None else f"{flag(name)} {value_text(before)}"
            message = f"the checkpoint was trained with {value_text(before)}, this run with {value_text(given)}"
            yield message, flag(name), f"{fix}; or, to resume with another, change it in {INDEX_FILE}"
    if index.loss != plan.uses.loss:
        message = f"the checkpoint was trained with loss: {index.loss}, and the plan says loss: {plan.uses.loss}"
        yield message, "uses.loss", f"loss: {index.loss}; or, to resume with another, change it in {INDEX_FILE}"
    yield from dtype_and_schedule_differences(index, plan, options)
    if index.data != data_digest(options):
        yield "the checkpoint was trained on other data", "--data", "give the same data, or leave it out as before"


def dtype_and_schedule_differences(
    index: CheckpointFile, plan: Plan, options: RunOptions
) -> Iterator[tuple[str, str, str]]:
    """Differences of dtypes, and of the step at which a schedule ends."""
    for module, dtype in module_dtypes(plan, options).items():
        before = index.dtypes.get(module)
        if before != dtype:
            fix = f"--dtype {before}" if len({*index.dtypes.values()}) == 1 else f"layouts.{module}.dtype: {before}"
            message = f"`{module}` was trained in {value_text(before)}, this run would train it in {dtype}"
            yield message, "--dtype", f"{fix}; or, to resume with another, change it in {INDEX_FILE}"
    schedule, total = options.training.schedule, options.step_count(plan)
    if schedule != "constant" and index.total != total:
        fix = f"--steps {index.total}; or, " if index.total > index.steps else ""
        message = f"the checkpoint's {schedule} schedule ends after step {index.total}, this run's after step {total}"
        yield message, "--steps", f"{fix}to resume with another, change `total` in {INDEX_FILE}"
