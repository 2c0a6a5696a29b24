"""Parameters, and the optimizer state of each, under the parameter names of these models: a rank reads its shard, from
shards that ranks of any layout wrote, or from full tensors.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from planner.errors import InputError
from planner.models.build import build
from planner.models.checkpoints.stored_shards import MATCHING_CHECKPOINT, HeldShard, StoredShards
from planner.models.sharding import ParameterSplit, copy_to_parameter, full_shape, parameter_splits, take_shard
from planner.models.tensor_region import held_region, held_values
from planner.specs.layers import Module

META = torch.device("meta")


def load_native(model: nn.Module, stored: StoredShards) -> None:
    """Load all parameters of the shard that this rank holds, cast to their dtype. Raises InputError."""
    fill_from_shards(dict(model.named_parameters()), parameter_splits(model), stored)


@torch.no_grad()
def fill_from_shards(
    tensors: Mapping[str, Tensor], splits: Mapping[str, Sequence[ParameterSplit]], stored: StoredShards
) -> None:
    """Fill what this rank holds of tensors from what others wrote of them. Raises InputError, which names the folder,
    where a shape is another, or a number is missing or not finite.
    """
    for name, tensor in tensors.items():
        values = held_values(tensor)
        stored.fill(name, HeldShard(held_region(tensor, splits.get(name, ())), values))
        require_finite(name, values, stored.folder)


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
        require_finite(name, shard, source)
        copy_to_parameter(tensor, shard)


def require_finite(name: str, values: Tensor, source: Path) -> None:
    """Raises InputError, which names the source of a tensor (any shape), where a number is not finite."""
    if not all_finite(values):
        what = f"`{name}` has numbers that are not finite"
        raise InputError(what, where=str(source), fix="fetch these weights again, or give others")


def all_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor (any shape) are finite."""
    return not tensor.numel() or all(math.isfinite(end) for end in tensor.aminmax())


def parameter_shapes(spec: Module, trained: bool = False) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter of the full module; `trained`: of those that have gradients."""
    named = build(spec, device=META).named_parameters()
    return {name: tuple(values.shape) for name, values in named if values.requires_grad or not trained}


def require_native_shapes(shapes: Mapping[str, tuple[int, ...]], stored: StoredShards) -> None:
    """Raises InputError unless exactly these tensors, of these shapes, are stored."""
    for name, want in shapes.items():
        if stored.shape(name) != want:
            what = f"`{name}` is {[*stored.shape(name)]}, the model has {[*want]}"
            raise InputError(what, where=str(stored.folder), fix=MATCHING_CHECKPOINT)
    more = sorted(stored.shards.keys() - shapes.keys())
    if more:
        raise InputError(f"the model has no `{more[0]}`", where=str(stored.folder), fix=MATCHING_CHECKPOINT)
