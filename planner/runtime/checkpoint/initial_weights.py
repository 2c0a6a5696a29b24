"""Initial weights of a run: from the checkpoint to resume, from other weights, or random."""

from pathlib import Path

from planner.models.checkpoints import InitialWeights, parameter_shapes, require_native_shapes
from planner.runtime.checkpoint.checkpoint_index import CheckpointFile, read_index, saved_kinds, tensor_file
from planner.runtime.run_options import RunOptions


def initial_weights_source(options: RunOptions, found: CheckpointFile | None, module: str) -> InitialWeights:
    """Where the initial weights of a module come from. `found`: index of the checkpoint to resume from, if any."""
    if options.resume is None or found is None:
        return InitialWeights(options.seed, options.weights)
    return InitialWeights(native_file=tensor_file(options.resume / found.states, module, "weights"))


def require_tensor_files(folder: Path) -> None:
    """Raises InputError where a tensor file of the checkpoint is missing, or has names or shapes unlike the model's."""
    index = read_index(folder)
    for module, spec in index.models.items():
        for kind in saved_kinds(spec):
            shapes = parameter_shapes(spec, trained=kind != "weights")
            wanted = dict.fromkeys(shapes, ()) if kind == "step" else shapes
            require_native_shapes(wanted, tensor_file(folder / index.states, module, kind))
