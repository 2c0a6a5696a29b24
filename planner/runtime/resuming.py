"""What a run starts from: a checkpoint that it goes on with, other weights, or drawn ones."""

from pathlib import Path

from planner.models.named import require_named
from planner.models.pretrained import First
from planner.runtime.checkpoint import KINDS, read_index, tensors
from planner.runtime.options import RunOptions


def first_of(options: RunOptions, module: str) -> First:
    """A module's weights."""
    if options.resume is None:
        return First(options.seed, options.weights)
    return First(named=tensors(options.resume, read_index(options.resume).states, module, "weights"))


def require_tensors(folder: Path) -> None:
    """All that the index of a checkpoint speaks of is there, and so shaped. Raises InputError."""
    index = read_index(folder)
    for module, spec in index.models.items():
        for kind in KINDS:
            require_named(spec, tensors(folder, index.states, module, kind), scalars=kind == "step")
