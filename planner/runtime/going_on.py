"""Whether a run can go on with a checkpoint: it must be of its model, options and data. Told before any launch."""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files.writable import stands
from planner.plan.model import Plan
from planner.runtime.checkpoint import INDEX, OTHER, CheckpointFile, data_of, dtypes_of, read_index
from planner.runtime.options import RunOptions
from planner.specs.base import Spec

FLAGS = {"decay": "--weight-decay"}  # where an option of training is called otherwise
SAME_MODEL = "resume with a plan of the same model"


def taken_up(options: RunOptions) -> RunOptions:
    """The same options, completed by the checkpoint: a run that is not told its steps has as many in all as that was to
    have, if any are left. One that goes on with what it saves itself begins where there is nothing yet, and only there
    with `--weights`. Raises InputError.
    """
    if options.resume is None:
        return options
    own = options.save is not None and same(options.resume, options.save)
    if own and not stands(options.resume / INDEX, f"--resume {options.resume}"):
        return replace(options, resume=None)
    found = read_index(options.resume)
    steps = found.total if options.steps is None and found.total > found.steps else options.steps
    return replace(options, steps=steps, weights=None if own else options.weights)


def require_place(options: RunOptions) -> None:
    """Nothing is lost where the run saves. Raises InputError."""
    if options.save is None:
        return
    where = f"--save {options.save}"
    if stands(options.save, where) and not options.save.is_dir():
        raise InputError("this is no folder", where=where, fix="name a folder, or a path where nothing is")
    if options.weights is not None and same(options.weights, options.save):
        message = "the weights that the run starts from would be replaced"
        raise InputError(message, where=where, fix="name another folder")
    if options.resume is not None and same(options.resume, options.save):
        return
    if stands(options.save / INDEX, where):
        fix = f"--resume {options.save} to go on with it; or name another folder, or remove this one"
        raise InputError("a checkpoint lies here, and would be replaced", where=where, fix=fix)
    for side in OTHER:
        if stands(options.save / side, where):
            message = f"{side} lies here without its {INDEX}, and would be replaced"
            raise InputError(message, where=where, fix=f"put {INDEX} back, name another folder, or remove {side}")


def same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def require_same_run(plan: Plan, options: RunOptions) -> None:
    """The checkpoint, if the run goes on with one, is of its model, options and data, and leaves steps to do. Raises
    InputError.
    """
    if options.resume is None:
        return
    if options.weights is not None:
        message = "a run goes on with the weights of its checkpoint"
        raise InputError(message, where="--weights", fix="leave it out, or leave out --resume")
    found = read_index(options.resume)
    for message, where, fix in differences(found, plan, options):
        raise InputError(message, where=where or f"--resume {options.resume}", fix=fix)
    if found.steps >= options.count(plan):
        message = f"the checkpoint has {found.steps} steps behind it, and the run is to have {options.count(plan)}"
        raise InputError(message, where="--steps", fix=f"--steps {found.steps + 1}, or more: it counts all of them")


def differences(found: CheckpointFile, plan: Plan, options: RunOptions) -> Iterator[tuple[str, str, str]]:
    """What differs, where (empty: in the checkpoint), and the fix."""
    models = {module: plan.uses.models[module] for module in plan.layouts}
    if found.models.keys() != models.keys():
        message = f"the checkpoint has the modules {', '.join(found.models)}; the plan has {', '.join(models)}"
        yield message, "", SAME_MODEL
        return
    for module, spec in models.items():
        unlike = difference(module, found.models[module], spec)
        if unlike:
            yield unlike, "", SAME_MODEL
    for name, said in {"seed": options.seed, **asdict(options.training)}.items():
        before = found.seed if name == "seed" else getattr(found.training, name)
        if before != said:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            fix = f"leave {flag} out" if before is None else f"{flag} {spelled(before)}"
            message = f"the checkpoint was trained with {spelled(before)}, this run is told {spelled(said)}"
            yield message, flag, f"{fix}; or, to go on with others, change it in {INDEX}"
    yield from other_numbers(found, plan, options)
    if found.data != data_of(options):
        yield "the checkpoint was trained on other data", "--data", "give the same, or leave it out as before"


def other_numbers(found: CheckpointFile, plan: Plan, options: RunOptions) -> Iterator[tuple[str, str, str]]:
    """Dtypes, and where a schedule would end, with what to do."""
    for module, said in dtypes_of(plan, options).items():
        before = found.dtypes.get(module)
        if before != said:
            fix = f"--dtype {before}" if len({*found.dtypes.values()}) == 1 else f"layouts.{module}.dtype: {before}"
            message = f"`{module}` was trained in {spelled(before)}, this run would train it in {said}"
            yield message, "--dtype", f"{fix}; or, to go on with others, change it in {INDEX}"
    schedule, of = options.training.schedule, options.count(plan)
    if schedule != "constant" and found.total != of:
        fix = f"--steps {found.total}; or, " if found.total > found.steps else ""
        message = f"the checkpoint's {schedule} schedule ends behind step {found.total}, this run's behind step {of}"
        yield message, "--steps", f"{fix}to go on with another, change `total` in {INDEX}"


def difference(place: str, before: Any, now: Any) -> str:
    """The first place in which two pieces of a file are unlike; empty where they are not."""
    if isinstance(before, Spec) and type(before) is type(now):
        fields = (field for field in before.__struct_fields__ if getattr(before, field) != getattr(now, field))
        return next((difference(f"{place}.{name}", getattr(before, name), getattr(now, name)) for name in fields), "")
    return "" if before == now else f"`{place}` is {spelled(before)} in the checkpoint and {spelled(now)} in the plan"


def spelled(value: Any) -> str:
    """As somebody would write it."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "none" if value is None else type(value).__name__.lower() if isinstance(value, Spec) else str(value)
