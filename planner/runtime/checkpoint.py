"""A folder from which training goes on: an index, and beside it the tensors of all modules. It loads no torch.

    FOLDER/checkpoint.yaml                    the index (planner.checkpoint/1): written last, by one rename
    FOLDER/states-a/llm.weights.safetensors   of the checkpoint that it names; the next one is written into states-b

So a folder is never without its last whole checkpoint, and one without an index is none. Files hold whole parameters
under the zoo's own names, whatever the layout was, and anybody can read them. torch.distributed.checkpoint would know a
whole from DTensors alone, which parts of matrices and of experts are not here, and its files need it to be read.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Literal

from planner import files
from planner.errors import InputError
from planner.plan.model import Plan
from planner.runtime.options import RunOptions
from planner.specs.base import Count, Name, Spec
from planner.specs.model import Module
from planner.specs.token_rows import OFFSETS

INDEX = "checkpoint.yaml"
Kind = Literal["weights", "exp_avg", "exp_avg_sq", "step"]  # step: updates of each parameter so far
KINDS: tuple[Kind, ...] = ("weights", "exp_avg", "exp_avg_sq", "step")
Side = Literal["states-a", "states-b"]
FLAGS = {"decay": "--weight-decay"}  # where an option of training is called otherwise


class CheckpointFile(Spec, kw_only=True):
    """`planner.checkpoint/1`: how far a run has come, and what it must be told to go on with the same numbers."""

    FORMAT: ClassVar[str] = "planner.checkpoint/1"
    format: str
    states: Side  # folder of the tensors, beside this file
    steps: Count  # done: a run goes on with the next one's items and learning rate
    seed: int
    data: str | None = None  # digest of the offsets of its tokens; None: synthetic items
    training: dict[str, int | float | str | tuple[float, ...] | None]
    models: dict[Name, Module]


def read_index(folder: Path) -> CheckpointFile:
    """Raises InputError."""
    if not (folder / INDEX).is_file():
        what, fix = f"this is no checkpoint: there is no {INDEX}", "name a folder that `planner run --save` wrote"
        raise InputError(what, where=f"--resume {folder}", fix=fix)
    return files.read(folder / INDEX, CheckpointFile)


def index_of(plan: Plan, options: RunOptions, steps: int, states: Side) -> CheckpointFile:
    """Of a run after so many steps."""
    return CheckpointFile(
        format=CheckpointFile.FORMAT,
        states=states,
        steps=steps,
        seed=options.seed,
        data=data_of(options),
        training=asdict(options.training),
        models={module: plan.uses.models[module] for module in plan.layouts},
    )


def tensors(folder: Path, states: Side, module: str, kind: Kind) -> Path:
    return folder / states / f"{module}.{kind}.safetensors"


def data_of(options: RunOptions) -> str | None:
    return None if options.data is None else files.digest(options.data / OFFSETS)


def steps_done(options: RunOptions) -> int:
    """Before the run: those of the one that it goes on with."""
    return 0 if options.resume is None else read_index(options.resume).steps


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
        yield message, "", "resume with a plan of the same model"
        return
    for module, spec in models.items():
        unlike = difference(module, found.models[module], spec)
        if unlike:
            yield unlike, "", "resume with a plan of the same model"
    for name, said in {"seed": options.seed, **asdict(options.training)}.items():
        before = found.seed if name == "seed" else found.training.get(name)
        if before != said:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            fix = f"leave {flag} out" if before is None else f"{flag} {spelled(before)}"
            message = f"the checkpoint was trained with {spelled(before)}, this run is told {spelled(said)}"
            yield message, flag, f"{fix}; or, to go on with others, change it in {INDEX}"
    if found.data != data_of(options):
        yield "the checkpoint was trained on other data", "--data", "give the same, or leave it out as before"


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
