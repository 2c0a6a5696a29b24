"""Weights read from and written to Hugging Face and native checkpoints in safetensors files."""

from planner.models.checkpoints.hugging_face import (
    InitialWeights,
    require_checkpoint,
    require_same_function,
    save_checkpoint_streamed,
    saveable,
    set_initial_weights,
)
from planner.models.checkpoints.native import (
    all_finite,
    fill_from_shards,
    parameter_shapes,
    require_native_shapes,
)
from planner.models.checkpoints.safetensors_files import (
    DTYPE_NAMES,
    DTYPES,
)
from planner.models.checkpoints.stored_shards import HeldShard, StoredShards, read_shards, write_shards
