"""Saves a checkpoint from which a run can resume, and for a decoder also one that Hugging Face and `--weights` read.

Files are written to a temporary folder, then renamed into place, the index last; what they replace is removed once they
are on disk.
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

NEW = "states-new"  # folder of the tensors until all are written
LOCK = "saving.lock"


@contextmanager
def claimed(worker: Worker, folder: Path | None) -> Iterator[None]:
    """Locks the folder for the duration of a run that saves, before any rank proceeds. Raises InputError, on rank 0,
    when another run saves there.
    """
    first = folder is not None and worker.rank == 0
    with hold(folder / LOCK, "another run saves in this folder") if folder and first else nullcontext():
        if folder is not None:
            dist.barrier()
        yield


def save(executor: Executor, folder: Path, steps: int) -> None:
    """Saves the state after `steps` steps. Every rank calls it; rank 0 writes. Raises RunFailed where files cannot be
    written or a tensor is not finite: the previous checkpoint then stays.
    """
    executor.worker.begin("saving")
    for optimizer in executor.optimizers.values():
        optimizer.zero_grad()  # frees memory for unsharded tensors
    if executor.worker.rank == 0:
        with removed_on_failure(folder / NEW, steps):
            write_checkpoint(executor, folder, steps)
    else:
        for _, tensors in all_tensors(executor):
            tensors.send()
    dist.barrier(group=executor.local.patient)  # when any rank returns, the checkpoint is complete


@contextmanager
def removed_on_failure(new: Path, steps: int) -> Iterator[None]:
    """Removes the temporary folder at the end, and turns errors into RunFailed."""
    try:
        yield
    except InputError as error:
        raise save_failure(steps, error.message, error.where) from error
    except OSError as error:
        raise save_failure(steps, f"cannot write: {error.strerror}", str(new.parent)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def save_failure(steps: int, why: str, where: str) -> RunFailed:
    fix = f"make room, or fix what is named here; then --resume continues from the {INDEX} that is there, if any"
    return RunFailed(f"the checkpoint after {steps} steps could not be saved: {why}", where=where, fix=fix)


def write_checkpoint(executor: Executor, folder: Path, steps: int) -> None:
    """Writes the checkpoint on rank 0. The previous one stays until all is on disk."""
    local, side, new = executor.local, spare(folder), folder / NEW
    shutil.rmtree(new, ignore_errors=True)  # left over from a save that was interrupted
    for (module, kind), full in all_tensors(executor):
        write_in_turn(tensors(new, module, kind), full.described, finite_tensors(full, steps))
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
    """The states folder that the current checkpoint does not use. Raises InputError when its index is invalid."""
    return OTHER[read_index(folder).states] if stands(folder / INDEX, str(folder)) else "states-a"


def finite_tensors(full: Turns, steps: int) -> Iterator[Tensor]:
    """Yields one unsharded tensor after the other. Raises RunFailed for one that is not finite."""
    for name, tensor in full:
        if tensor.numel() and not all(math.isfinite(end) for end in tensor.aminmax()):
            raise RunFailed(
                f"`{full.module}.{name}` is not finite after step {steps}: the checkpoint is not saved",
                where=f"step {steps}",
                fix="resume from the previous checkpoint, if there is one, with a lower learning rate or with --clip",
            )
        yield tensor
        del tensor  # frees it before the next one is gathered


def all_tensors(executor: Executor) -> Iterator[tuple[tuple[str, Kind], Turns]]:
    """The unsharded tensors of every module and kind, in the same order on all ranks."""
    for module in executor.local.plan.layouts:
        for kind in KINDS:
            yield (module, kind), Turns(executor.local, module, tensor_reader(executor, module, kind))


def tensor_reader(executor: Executor, module: str, kind: Kind) -> Read:
    """Function that reads the tensors of this kind from a stage."""
    return Stage.weights if kind == "weights" else lambda stage: states(executor.optimizers[module], stage, kind)


def write_decoder(plan: Plan, new: Path) -> None:
    """Writes config.json and model.safetensors of the plan's decoder, from the weights that were just written, if it
    has exactly one that can be written as a Hugging Face model.
    """
    module = decoder_of(plan)
    if module is None:
        return
    weights = Checkpoint(tensors(new, module, "weights"))
    described = {name: Described(entry.dtype, entry.shape) for name, entry in weights.entries.items()}
    save_in_turn(described, ((name, weights.mapped(name)) for name in described), plan.uses.models[module], new)


def decoder_of(plan: Plan) -> str | None:
    """The only module that can be written as a Hugging Face model; None when there is none, or several."""
    saveable_modules = [module for module in plan.layouts if saveable(plan.uses.models[module])]
    return saveable_modules[0] if len(saveable_modules) == 1 else None
