"""What was trained, as a checkpoint that Hugging Face and `--weights` read."""

from pathlib import Path

from planner.errors import InputError
from planner.models.pretrained import require_saveable, save_weights
from planner.plan.model import Plan
from planner.runtime import whole
from planner.runtime.local import Local


def require_saving(plan: Plan, folder: Path) -> None:
    """Raises InputError when the plan's model has no such form, or something else lies there."""
    if len(plan.layouts) != 1:
        message = f"a checkpoint is of one decoder, the plan has {len(plan.layouts)} modules"
        raise InputError(message, where="--save", fix="leave it out")
    require_saveable(plan.uses.models[next(iter(plan.layouts))])
    if folder.exists() and not folder.is_dir():
        raise InputError("this is no folder", where=f"--save {folder}", fix="name a folder, or a path where nothing is")


def save(local: Local, folder: Path) -> None:
    """Every rank calls it; the first writes config.json and model.safetensors, over those that were there."""
    local.worker.begin("saving")
    for module, weights in whole.weights(local).items():
        folder.mkdir(parents=True, exist_ok=True)
        save_weights(weights, local.plan.uses.models[module], folder)
