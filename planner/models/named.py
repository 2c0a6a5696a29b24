"""Parameters, and what an optimizer keeps of each, in files under the zoo's own names: a rank reads its part."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from planner.errors import InputError
from planner.models.build import build
from planner.models.held import Split, copy_into, part_of, splits_of, whole_shape
from planner.models.safetensors import Checkpoint
from planner.specs.layers import Module

META = torch.device("meta")
FIX = "give what was saved of this very model"


def load_named(model: nn.Module, file: Path) -> None:
    """All parameters of whatever part of the module this rank holds, cast to their dtype. Raises InputError."""
    fill(dict(model.named_parameters()), splits_of(model), Checkpoint(file).mapped, file)


@torch.no_grad()
def fill(
    tensors: Mapping[str, Tensor], splits: Mapping[str, Sequence[Split]], read: Callable[[str], Tensor], source: Path
) -> None:
    """Parts and shards of tensors from the whole of each, one at a time. Raises InputError, naming the source."""
    for name, tensor in tensors.items():
        values, of = read(name), splits.get(name, ()) if tensor.dim() else ()  # a count of updates is no part
        shape = whole_shape(tensor.shape, of)
        if list(values.shape) != shape:
            what = f"`{name}` is {[*values.shape]}, the model has {shape}"
            raise InputError(what, where=str(source), fix=FIX)
        copy_into(tensor, part_of(values, of).to(tensor.device, tensor.dtype))


def shapes_of(spec: Module) -> dict[str, tuple[int, ...]]:
    """Of each parameter of the whole module."""
    return {name: tuple(values.shape) for name, values in build(spec, device=META).named_parameters()}


def require_shapes(shapes: Mapping[str, tuple[int, ...]], file: Path) -> None:
    """The file has a tensor of each name, so shaped, and no other. Raises InputError."""
    checkpoint = Checkpoint(file)
    for name, want in shapes.items():
        if checkpoint.shape(name) != want:
            what = f"`{name}` is {[*checkpoint.shape(name)]}, the model has {[*want]}"
            raise InputError(what, where=str(file), fix=FIX)
    more = sorted(checkpoint.entries.keys() - shapes.keys())
    if more:
        raise InputError(f"the model has no `{more[0]}`", where=str(file), fix=FIX)
