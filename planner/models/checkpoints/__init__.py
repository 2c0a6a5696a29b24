"""Weights read from and written to Hugging Face and native checkpoints in safetensors files."""

from planner.models.checkpoints.hugging_face import (
    CONFIG,
    InitialWeights,
    require_checkpoint,
    require_same_function,
    save_checkpoint_streamed,
    saveable,
    set_initial_weights,
)
from planner.models.checkpoints.native import all_finite, fill_from_full, parameter_shapes, require_native_shapes
from planner.models.checkpoints.safetensors_files import (
    SINGLE_FILE,
    SafetensorsCheckpoint,
    TensorDescription,
    write_tensors_streamed,
)

__all__ = [
    "CONFIG",
    "SINGLE_FILE",
    "InitialWeights",
    "SafetensorsCheckpoint",
    "TensorDescription",
    "all_finite",
    "fill_from_full",
    "parameter_shapes",
    "require_checkpoint",
    "require_native_shapes",
    "require_same_function",
    "save_checkpoint_streamed",
    "saveable",
    "set_initial_weights",
    "write_tensors_streamed",
]
