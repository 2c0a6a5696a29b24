"""What was trained: a checkpoint from which training goes on, and of a decoder one that Hugging Face and `--weights`
read.

All of it is written into a folder of its own first, then comes to its place by renames, the index last; what these
replace is removed when the disk has them.
"""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from planner import files
from planner.errors import InputError, RunFailed
from planner.files.lock import hold
from planner.files.whole import keep_names
from planner.files.writable import stands
from planner.launch.worker import Worker
from planner.models.pretrained import CONFIG, save_in_turn, saveable
from planner.models.safetensors import ONE, Checkpoint, Described, write_in_turn
from planner.plan.model import Plan
from planner.runtime.checkpoint import INDEX, KINDS, OTHER, Kind, Side, index_of, read_index, tensors
from planner.runtime.executor import Executor
from planner.runtime.optimizers import states
from planner.runtime.stage import Stage
from planner.runtime.whole import Read, Turns

NEW = "states-new"  # where they lie until all are there
LOCK = "saving.lock"


@contextmanager
def claimed(worker: Worker, folder: Path | None) -> Iterator[None]:
    """Around a run that saves: no other does so there meanwhile. No rank begins before that is sure. Raises InputError,
    on the first rank.
    """
    own = folder is not None and worker.rank == 0
    with hold(folder / LOCK, "another run saves in this folder") if folder and own else nullcontext():
        if folder is not None:
            dist.barrier()
        yield


def save(executor: Executor, folder: Path, steps: int) -> None:
    """After so many steps. Every rank calls it; the first writes. Raises RunFailed where that cannot be done, and where
    what was trained is no number any more: the checkpoint that was there before stays.
    """
    executor.worker.begin("saving")
    for optimizer in executor.optimizers.values():
        optimizer.zero_grad()  # whole tensors need the room
    if executor.worker.rank == 0:
        with undone(folder / NEW, steps):
            write_checkpoint(executor, folder, steps)
    else:
        for _, turns in every_tensor(executor):
            turns.send()
    dist.barrier(group=executor.local.patient)  # for whom it was saved it is there


@contextmanager
def undone(new: Path, steps: int) -> Iterator[None]:
    """Where something fails nothing new stays, and it is the run that failed."""
    try:
        yield
    except InputError as error:
        raise not_saved(steps, error.message, error.where) from error
    except OSError as error:
        raise not_saved(steps, f"cannot write: {error.strerror}", str(new.parent)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def not_saved(steps: int, why: str, where: str) -> RunFailed:
    fix = f"make room, or mend what is said here; then --resume goes on with the {INDEX} that is there, if any"
    return RunFailed(f"what was trained in {steps} steps could not be saved: {why}", where=where, fix=fix)


def write_checkpoint(executor: Executor, folder: Path, steps: int) -> None:
    """On the first rank. What was there before stays until the disk has all."""
    local, side, new = executor.local, spare(folder), folder / NEW
    shutil.rmtree(new, ignore_errors=True)  # of one that was cut off
    for (module, kind), turns in every_tensor(executor):
        write_in_turn(tensors(new, module, kind), turns.described, finite(turns, steps))
    write_decoder(local.plan, new)
    shutil.rmtree(folder / side, ignore_errors=True)
    for name in (CONFIG, ONE):
        if (new / name).exists():
            os.replace(new / name, folder / name)
    os.replace(new, folder / side)
    keep_names(folder / side)
    keep_names(folder)
    files.write(folder / INDEX, index_of(local.plan, local.options, steps, side, local.data), lasting=True)
    shutil.rmtree(folder / OTHER[side], ignore_errors=True)


def spare(folder: Path) -> Side:
    """Where no whole checkpoint lies. Raises InputError where nobody can tell."""
    return OTHER[read_index(folder).states] if stands(folder / INDEX, str(folder)) else "states-a"


def finite(turns: Turns, steps: int) -> Iterator[Tensor]:
    """One tensor after the other. Raises RunFailed."""
    for name, tensor in turns:
        if tensor.numel() and not all(math.isfinite(end) for end in tensor.aminmax()):
            raise RunFailed(
                f"`{turns.module}.{name}` is not finite behind step {steps}: it is not saved",
                where=f"step {steps}",
                fix="go on with the checkpoint before, if there is one, by a lower learning rate or with --clip",
            )
        yield tensor
        del tensor  # before the next one is made


def every_tensor(executor: Executor) -> Iterator[tuple[tuple[str, Kind], Turns]]:
    """Of every module, on all ranks in one order."""
    for module in executor.local.plan.layouts:
        for kind in KINDS:
            yield (module, kind), Turns(executor.local, module, reading(executor, module, kind))


def reading(executor: Executor, module: str, kind: Kind) -> Read:
    """Where a stage's tensors of this kind are."""
    return Stage.weights if kind == "weights" else lambda stage: states(executor.optimizers[module], stage, kind)


def write_decoder(plan: Plan, new: Path) -> None:
    """config.json and model.safetensors of the plan's decoder, if it has one alone, and of a kind that has names there:
    from the weights that were just written.
    """
    module = decoder_of(plan)
    if module is None:
        return
    written = Checkpoint(tensors(new, module, "weights"))
    described = {name: Described(entry.dtype, entry.shape) for name, entry in written.entries.items()}
    save_in_turn(described, ((name, written.mapped(name)) for name in described), plan.uses.models[module], new)


def decoder_of(plan: Plan) -> str | None:
    saved = [module for module in plan.layouts if saveable(plan.uses.models[module])]
    return saved[0] if len(saved) == 1 else None
