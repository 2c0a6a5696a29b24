"""What a run starts from: a checkpoint that it goes on with, other weights, or drawn ones."""

from pathlib import Path

from planner.models.named import require_shapes, shapes_of
from planner.models.pretrained import First
from planner.runtime.checkpoint import KINDS, CheckpointFile, read_index, tensors
from planner.runtime.options import RunOptions


def first_of(options: RunOptions, found: CheckpointFile | None, module: str) -> First:
    """A module's weights. `found`: the index of the checkpoint, where the run goes on with one."""
    if options.resume is None or found is None:
        return First(options.seed, options.weights)
    return First(named=tensors(options.resume / found.states, module, "weights"))


def require_tensors(folder: Path) -> None:
    """All that the index of a checkpoint speaks of is there, and so shaped. Raises InputError."""
    index = read_index(folder)
    for module, spec in index.models.items():
        shapes = shapes_of(spec)
        for kind in KINDS:
            wanted = dict.fromkeys(shapes, ()) if kind == "step" else shapes
            require_shapes(wanted, tensors(folder / index.states, module, kind))
