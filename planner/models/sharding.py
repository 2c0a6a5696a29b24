"""What one rank holds of a module: some of its layers, a shard of each matrix, some of the experts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from planner.specs.base import Layers
from planner.specs.parallelism import Recompute

MeshDim = Literal["tp", "ep", "etp"]  # the mesh dimension over which a parameter is sharded


@dataclass(frozen=True, slots=True)
class EqualShard:
    """One of `count` equal shards."""

    index: int = 0
    count: int = 1

    def size(self, width: int) -> int:
        """Size of this shard of a dimension, which `count` divides: plans in which tp, ep or etp does not divide heads,
        experts or widths were refused before; `ModuleShard.tp_shard` handles the rest.
        """
        return width // self.count

    def span(self, width: int) -> tuple[int, int]:
        """First and last (exclusive) index of this shard in a dimension of size `width`."""
        return self.index * self.size(width), (self.index + 1) * self.size(width)


class ExpertShard(NamedTuple):
    """Which of a layer's experts a rank holds (ep), and which shard of each (etp)."""

    ep: EqualShard = EqualShard()
    etp: EqualShard = EqualShard()


ALL_EXPERTS = ExpertShard()


@dataclass(frozen=True, slots=True)
class ModuleShard:
    """What a rank holds of a module; by default everything."""

    layers: Layers | None = None  # None: all
    tp: EqualShard = EqualShard()
    experts: Mapping[int, ExpertShard] = field(default_factory=dict)  # by layer; all experts of other layers
    recompute: Mapping[int, Recompute] = field(default_factory=dict)  # by layer; other layers recompute nothing

    def holds(self, layer: int) -> bool:
        """Whether the rank holds this layer."""
        return self.layers is None or layer in self.layers

    def tp_shard(self, width: int) -> EqualShard:
        """The tp shard of an MLP, vocabulary or projector of this width: all of it where tp does not divide it."""
        return EqualShard() if width % self.tp.count else self.tp


FULL_MODULE = ModuleShard()


@dataclass(frozen=True, slots=True)
class ParameterSplit:
    """A parameter is a shard of a full one along one dimension, or of each section of that dimension."""

    dim: int
    shard: EqualShard
    mesh_dim: MeshDim
    sections: tuple[int, ...] = ()  # sizes of consecutive sections of the full dimension; (): a single one

    def spans(self, width: int) -> Iterator[tuple[int, int]]:
        """First and last (exclusive) index of this shard in each section of a full dimension of size `width`."""
        begin = 0
        for section in self.sections or (width,):
            first, last = self.shard.span(section)
            yield begin + first, begin + last
            begin += section


def full_shape(shape: Sequence[int], splits: Sequence[ParameterSplit]) -> list[int]:
    """The full shape of a parameter of which a shard has this shape."""
    full = [*shape]
    for split in splits:
        full[split.dim] *= split.shard.count
    return full


def take_shard(full: Tensor, splits: Sequence[ParameterSplit]) -> Tensor:
    """The shard of a full parameter (any shape), smaller in the split dimensions; a view, unless it has sections."""
    for split in splits:
        spans = split.spans(full.shape[split.dim])
        sections = [full.narrow(split.dim, first, last - first) for first, last in spans]
        full = sections[0] if len(sections) == 1 else torch.cat(sections, split.dim)
    return full


def copy_to_parameter(parameter: Tensor, values: Tensor) -> None:
    """Copy values of the parameter's full shape into it; a DTensor takes its local shard, and nothing is sent."""
    if isinstance(parameter, DTensor):
        shard = distribute_tensor(values, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.to_local().copy_(shard.to_local())
    else:
        parameter.copy_(values)


def parameter_splits(model: nn.Module) -> dict[str, tuple[ParameterSplit, ...]]:
    """By parameter name, how it is sharded. Of others, each rank of tp contributes its tokens' gradient."""
    return {
        f"{prefix}.{name}" if prefix else name: splits
        for prefix, module in model.named_modules()
        for name, splits in getattr(module, "splits", {}).items()
        if any(split.shard.count > 1 for split in splits)
    }


def expert_parameters(model: nn.Module) -> set[str]:
    """Names of parameters that stack experts' matrices or biases along the first dim, on a mesh of their own."""
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if getattr(module, "are_experts", False)
        for name, _ in module.named_parameters()
    }
