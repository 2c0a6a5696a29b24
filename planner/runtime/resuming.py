"""Initial weights of a run: from the checkpoint to resume, from other weights, or random."""

from pathlib import Path

from planner.models.named import require_shapes, shapes_of
from planner.models.pretrained import First
from planner.runtime.checkpoint import KINDS, CheckpointFile, read_index, tensors
from planner.runtime.options import RunOptions


def first_of(options: RunOptions, found: CheckpointFile | None, module: str) -> First:
    """Where the initial weights of a module come from. `found`: index of the checkpoint to resume from, if any."""
    if options.resume is None or found is None:
        return First(options.seed, options.weights)
    return First(named=tensors(options.resume / found.states, module, "weights"))


def require_tensors(folder: Path) -> None:
    """Raises InputError where a tensor file of the checkpoint is missing, or has names or shapes unlike the model's."""
    index = read_index(folder)
    for module, spec in index.models.items():
        shapes = shapes_of(spec)
        for kind in KINDS:
            wanted = dict.fromkeys(shapes, ()) if kind == "step" else shapes
            require_shapes(wanted, tensors(folder / index.states, module, kind))
