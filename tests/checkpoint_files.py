"""Writes tensors that are all in memory, as tests have them, by what the product writes streams with."""

from planner.models.checkpoints.hugging_face import save_checkpoint_streamed
from planner.models.checkpoints.safetensors_files import TensorDescription, write_tensors_streamed
from planner.models.checkpoints.stored_shards import HeldShard, write_shards
from planner.models.tensor_region import whole_region
from planner.runtime.checkpoint.checkpoint_index import read_index, shard_prefix
from planner.runtime.checkpoint.stored_states import stored_states


def described(tensors):
    return {name: TensorDescription(values.dtype, tuple(values.shape)) for name, values in tensors.items()}


def write_tensors(path, tensors):
    """Write tensors (any shapes) to one file."""
    write_tensors_streamed(path, described(tensors), tensors.values())


def save_checkpoint(weights, spec, folder, source=None):
    """Write full parameters, by their names here, as config.json and model.safetensors."""
    save_checkpoint_streamed(described(weights), weights.items(), spec, folder, source)


def write_states(path, tensors):
    """Write full tensors to one file, as a rank does that holds all of them; its digest."""
    return write_shards(
        path,
        {name: HeldShard(whole_region(values.shape), values) for name, values in tensors.items()},
        tensors.values(),
    )


def saved_tensors(folder, module, kind):
    """The full tensors of one kind of a module, in the checkpoint of a folder."""
    return full_tensors(stored_states(folder, read_index(folder)), module, kind)


def full_tensors(states, module, kind):
    """Those of one kind of a module, of a checkpoint that is open: opening it takes longer than reading."""
    found = states.within(shard_prefix(module, kind))
    return {name: found.read(name) for name in found.shards}
