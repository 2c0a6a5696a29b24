"""Saves a checkpoint from which a run can resume, and for a decoder also one that Hugging Face and `--weights` read.

Files are written to a temporary folder, then renamed into place, the index last; what they replace is removed once they
are on disk.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from planner import files
from planner.errors import InputError, RunFailed
from planner.files import hold_lock, path_exists, sync_folder
from planner.launch import Worker
from planner.models.checkpoints import (
    CONFIG,
    SINGLE_FILE,
    SafetensorsCheckpoint,
    TensorDescription,
    all_finite,
    save_checkpoint_streamed,
    saveable,
    write_tensors_streamed,
)
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.checkpoint_index import (
    INDEX_FILE,
    OTHER_STATES_FOLDER,
    CheckpointFile,
    SavedStates,
    StatesFolder,
    TensorKind,
    checkpoint_index,
    read_index,
    saved_kinds,
    tensor_file,
)
from planner.runtime.checkpoint.kept_checkpoints import retire
from planner.runtime.checkpoint.resume_checks import require_save_folder, require_steps_left
from planner.runtime.execute.task_executor import TaskExecutor
from planner.runtime.run_options import RunOptions
from planner.runtime.state.full_tensors import FullTensors, StageTensorReader
from planner.runtime.state.optimizers import optimizer_states
from planner.runtime.state.sharded_stage import ShardedStage

NEW_STATES = "states-new"  # folder of the tensors until all are written
SAVE_LOCK = "saving.lock"


@contextmanager
def save_lock(worker: Worker, plan: Plan, options: RunOptions) -> Iterator[None]:
    """Locks the folder for the duration of a run that saves, before any rank proceeds. Raises InputError, on rank 0,
    when another run saves there, or has done so since this one was checked.
    """
    folder = options.save
    if folder is None:
        yield
        return
    with hold_lock(folder / SAVE_LOCK, "another run saves in this folder") if worker.rank == 0 else nullcontext():
        if worker.rank == 0:
            require_save_folder(options)
            require_steps_left(plan, options)
        dist.barrier()
        yield


def save_checkpoint(executor: TaskExecutor, folder: Path, steps: int) -> None:
    """Saves the state after `steps` steps. Every rank calls it; rank 0 writes. Raises RunFailed where files cannot be
    written or a tensor is not finite: the previous checkpoint then stays.
    """
    executor.worker.begin_task("saving")
    for optimizer in executor.optimizers.values():
        optimizer.zero_grad()  # frees memory for unsharded tensors
    if executor.worker.rank == 0:
        with removed_on_failure(folder / NEW_STATES, steps):
            write_checkpoint(executor, folder, steps)
    else:
        for _, tensors in all_tensors(executor):
            tensors.send_shards()
    dist.barrier(group=executor.local.file_group)  # when any rank returns, the checkpoint is complete


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
    fix = f"make room, or fix what is named here; then --resume continues from the {INDEX_FILE} that is there, if any"
    return RunFailed(f"the checkpoint after {steps} steps could not be saved: {why}", where=where, fix=fix)


def write_checkpoint(executor: TaskExecutor, folder: Path, steps: int) -> None:
    """Writes the checkpoint on rank 0. The previous one stays until all is on disk."""
    local, new = executor.local, folder / NEW_STATES
    previous = read_index(folder) if path_exists(folder / INDEX_FILE, str(folder)) else None
    side = unused_states_folder(previous)
    shutil.rmtree(new, ignore_errors=True)  # left over from a save that was interrupted
    digests: dict[str, str] = {}
    for (module, kind), full in all_tensors(executor):
        file = tensor_file(new, module, kind)
        digests[file.name] = write_tensors_streamed(file, full.descriptions, finite_tensors(full, steps))
    write_decoder(local.plan, local.options, new)
    shutil.rmtree(folder / side, ignore_errors=True)
    for name in (CONFIG, SINGLE_FILE):
        if (new / name).exists():
            os.replace(new / name, folder / name)
    os.replace(new, folder / side)
    sync_folder(folder / side)
    sync_folder(folder)
    index = checkpoint_index(local.plan, local.options, SavedStates(steps, side, digests), local.data_digest)
    files.write(folder / INDEX_FILE, index, durable=True)
    if previous:
        retire(folder, previous, local.options.retention)


def unused_states_folder(current: CheckpointFile | None) -> StatesFolder:
    """The states folder that the current checkpoint, if there is one, does not use."""
    return OTHER_STATES_FOLDER[current.states] if current else "states-a"


def finite_tensors(full: FullTensors, steps: int) -> Iterator[Tensor]:
    """Yields one unsharded tensor after the other. Raises RunFailed for one that is not finite."""
    for name, tensor in full:
        if not all_finite(tensor):
            raise RunFailed(
                f"`{full.module}.{name}` is not finite after step {steps}: the checkpoint is not saved",
                where=f"step {steps}",
                fix="resume from the previous checkpoint, if there is one, with a lower learning rate or with --clip",
            )
        yield tensor
        del tensor  # frees it before the next one is gathered


def all_tensors(executor: TaskExecutor) -> Iterator[tuple[tuple[str, TensorKind], FullTensors]]:
    """The unsharded tensors of every module and kind, in the same order on all ranks."""
    for module in executor.local.plan.layouts:
        for kind in saved_kinds(executor.local.plan.uses.models[module]):
            yield (module, kind), FullTensors(executor.local, module, tensor_reader(executor, module, kind))


def tensor_reader(executor: TaskExecutor, module: str, kind: TensorKind) -> StageTensorReader:
    """Function that reads the tensors of this kind from a stage."""
    if kind == "weights":
        return ShardedStage.weights
    return lambda stage: optimizer_states(executor.optimizers[module], stage, kind) if stage.trained else {}


def write_decoder(plan: Plan, options: RunOptions, new: Path) -> None:
    """Writes config.json and model.safetensors of the plan's decoder, from the weights that were just written, if it
    has exactly one that can be written as a Hugging Face model.
    """
    module = saveable_decoder(plan)
    if module is None:
        return
    weights = SafetensorsCheckpoint(tensor_file(new, module, "weights"))
    described = {name: TensorDescription(entry.dtype, entry.shape) for name, entry in weights.entries.items()}
    save_checkpoint_streamed(
        described,
        ((name, weights.read(name)) for name in described),
        plan.uses.models[module],
        new,
        options.resume or options.weights,
    )


def saveable_decoder(plan: Plan) -> str | None:
    """The only module that can be written as a Hugging Face model; None when there is none, or several."""
    saveable_modules = [module for module in plan.layouts if saveable(plan.uses.models[module])]
    return saveable_modules[0] if len(saveable_modules) == 1 else None
