"""The states in a checkpoint, as a run that resumes from it reads them; and its decoder as Hugging Face and `--weights`
read it: config.json and model.safetensors beside the index.
"""

from pathlib import Path
from typing import NamedTuple

from planner.errors import InputError, RunFailed
from planner.models.checkpoints import (
    InitialWeights,
    StoredShards,
    parameter_shapes,
    read_shards,
    require_native_shapes,
    save_checkpoint_streamed,
    saveable,
)
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.checkpoint_index import (
    CheckpointFile,
    DamagedCheckpoint,
    read_index,
    saved_kinds,
    shard_prefix,
)
from planner.runtime.run_options import RunOptions


class ResumedCheckpoint(NamedTuple):
    """The checkpoint that a run resumes from."""

    done: CheckpointFile  # its index
    states: StoredShards


def resumed_checkpoint(options: RunOptions) -> ResumedCheckpoint | None:
    """The checkpoint to resume from, if there is one. Raises InputError."""
    if options.resume is None:
        return None
    index = read_index(options.resume)
    return ResumedCheckpoint(index, stored_states(options.resume, index))


def stored_states(folder: Path, index: CheckpointFile) -> StoredShards:
    """The tensors of a checkpoint. Raises InputError."""
    return read_shards(folder / index.states, sorted(index.digests))


def initial_weights(options: RunOptions, resumed: ResumedCheckpoint | None, module: str) -> InitialWeights:
    """Where the initial weights of a module come from: the checkpoint that is resumed, if any, others, or random."""
    if resumed is None:
        return InitialWeights(options.seed, options.weights)
    return InitialWeights(stored=resumed.states.within(shard_prefix(module, "weights")))


def require_stored_states(folder: Path) -> None:
    """Raises DamagedCheckpoint where a file of the checkpoint is missing, or its tensors are not all of the model's."""
    index = read_index(folder)
    try:
        stored = stored_states(folder, index)
        for module, spec in index.models.items():
            for kind in saved_kinds(spec):
                shapes = parameter_shapes(spec, trained=kind != "weights")
                wanted = dict.fromkeys(shapes, ()) if kind == "step" else shapes
                require_native_shapes(wanted, stored.within(shard_prefix(module, kind)))
    except InputError as error:
        raise DamagedCheckpoint(error.message, where=error.where, fix=error.fix) from error


def export_decoder(plan: Plan, options: RunOptions, folder: Path, index: CheckpointFile) -> None:
    """Writes the plan's decoder from the checkpoint in `folder`, one full tensor after the other, if the plan has
    exactly one that can be written as a Hugging Face model. Raises RunFailed.
    """
    module = saveable_decoder(plan)
    if module is None:
        return
    try:
        weights = stored_states(folder, index).within(shard_prefix(module, "weights"))
        described = {name: weights.describe(name) for name in sorted(weights.shards)}
        save_checkpoint_streamed(
            described,
            ((name, weights.read(name)) for name in described),
            plan.uses.models[module],
            folder,
            options.resume or options.weights,
        )
    except InputError as error:
        message = f"the decoder after {index.steps} steps could not be written for others: {error.message}"
        fix = "make room, or fix what is named here; the checkpoint itself is complete, and --resume continues from it"
        raise RunFailed(message, where=error.where, fix=fix) from error


def saveable_decoder(plan: Plan) -> str | None:
    """The only module that can be written as a Hugging Face model; None when there is none, or several."""
    saveable_modules = [module for module in plan.layouts if saveable(plan.uses.models[module])]
    return saveable_modules[0] if len(saveable_modules) == 1 else None
