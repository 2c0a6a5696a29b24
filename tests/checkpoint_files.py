"""Writes tensors that are all in memory, as tests have them, by what the product writes streams with."""

from planner.models.checkpoints.hugging_face import save_checkpoint_streamed
from planner.models.checkpoints.safetensors_files import TensorDescription, write_tensors_streamed


def described(tensors):
    return {name: TensorDescription(values.dtype, tuple(values.shape)) for name, values in tensors.items()}


def write_tensors(path, tensors):
    """Write tensors (any shapes) to one file."""
    write_tensors_streamed(path, described(tensors), tensors.values())


def save_checkpoint(weights, spec, folder, source=None):
    """Write full parameters, by their names here, as config.json and model.safetensors."""
    save_checkpoint_streamed(described(weights), weights.items(), spec, folder, source)
