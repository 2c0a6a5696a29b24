"""The decoder of a checkpoint as Hugging Face and `--weights` read it: config.json and model.safetensors beside it."""

from pathlib import Path

from planner.errors import InputError, RunFailed
from planner.models.checkpoints import save_checkpoint_streamed, saveable
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.checkpoint_index import CheckpointFile, shard_prefix
from planner.runtime.checkpoint.stored_states import stored_states
from planner.runtime.run_options import RunOptions


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
