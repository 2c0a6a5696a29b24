"""Parameters, and the optimizer state of each, in safetensors files under the parameter names of these models; a rank
reads its shard.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from planner.errors import InputError
from planner.models.build import build
from planner.models.checkpoints.safetensors_files import SafetensorsCheckpoint
from planner.models.sharding import ParameterSplit, copy_to_parameter, full_shape, parameter_splits, take_shard
from planner.specs.layers import Module

META = torch.device("meta")
MATCHING_CHECKPOINT = "give a checkpoint of this very model"


def load_native(model: nn.Module, file: Path) -> None:
    """Load all parameters of the shard that this rank holds, cast to their dtype. Raises InputError."""
    fill_from_full(dict(model.named_parameters()), parameter_splits(model), SafetensorsCheckpoint(file).read, file)


@torch.no_grad()
def fill_from_full(
    tensors: Mapping[str, Tensor],
    splits: Mapping[str, Sequence[ParameterSplit]],
    read: Callable[[str], Tensor],
    source: Path,
) -> None:
    """Fill sharded tensors from full ones (any shapes), one at a time. Raises InputError, which names the source, where
    a shape is another, or a number is not finite.
    """
    for name, tensor in tensors.items():
        values, tensor_splits = (
            read(name),
            splits.get(name, ()) if tensor.dim() else (),
        )  # a scalar, the count of updates, is not sharded
        shape = full_shape(tensor.shape, tensor_splits)
        if list(values.shape) != shape:
            what = f"`{name}` is {[*values.shape]}, the model has {shape}"
            raise InputError(what, where=str(source), fix=MATCHING_CHECKPOINT)
        shard = take_shard(values, tensor_splits).to(tensor.device, tensor.dtype)
        if not all_finite(shard):
            what = f"`{name}` has numbers that are not finite"
            raise InputError(what, where=str(source), fix="fetch these weights again, or give others")
        copy_to_parameter(tensor, shard)


def all_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor (any shape) are finite."""
    return not tensor.numel() or all(math.isfinite(end) for end in tensor.aminmax())


def parameter_shapes(spec: Module, trained: bool = False) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter of the full module; `trained`: of those that have gradients."""
    named = build(spec, device=META).named_parameters()
    return {name: tuple(values.shape) for name, values in named if values.requires_grad or not trained}


def require_native_shapes(shapes: Mapping[str, tuple[int, ...]], file: Path) -> None:
    """Raises InputError unless the file has exactly these tensors, of these shapes."""
    checkpoint = SafetensorsCheckpoint(file)
    for name, want in shapes.items():
        if checkpoint.shape(name) != want:
            what = f"`{name}` is {[*checkpoint.shape(name)]}, the model has {[*want]}"
            raise InputError(what, where=str(file), fix=MATCHING_CHECKPOINT)
    more = sorted(checkpoint.entries.keys() - shapes.keys())
    if more:
        raise InputError(f"the model has no `{more[0]}`", where=str(file), fix=MATCHING_CHECKPOINT)
