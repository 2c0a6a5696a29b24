"""What of a module one rank holds: some of its layers, a part of each matrix, some of the experts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from planner.specs.base import Layers
from planner.specs.parallelism import Recompute

Over = Literal["tp", "ep", "etp"]  # along which dim of a mesh a parameter is split


@dataclass(frozen=True, slots=True)
class Part:
    """One of `of` equal parts."""

    index: int = 0
    of: int = 1

    def size(self, width: int) -> int:
        """Of this part of a width that divides: tp divides heads, ep experts and etp their widths, or the plan was
        refused before; `Held.part` sees to others.
        """
        return width // self.of

    def span(self, width: int) -> tuple[int, int]:
        return self.index * self.size(width), (self.index + 1) * self.size(width)


class ExpertPart(NamedTuple):
    """Some of a layer's experts, and of each a part."""

    ep: Part = Part()
    etp: Part = Part()


ALL_EXPERTS = ExpertPart()


@dataclass(frozen=True, slots=True)
class Held:
    """Everything, unless said otherwise."""

    layers: Layers | None = None  # None: all
    tp: Part = Part()
    experts: Mapping[int, ExpertPart] = field(default_factory=dict)  # by layer; of others all of them
    recompute: Mapping[int, Recompute] = field(default_factory=dict)  # by layer; of others nothing is made again

    def holds(self, layer: int) -> bool:
        return self.layers is None or layer in self.layers

    def part(self, width: int) -> Part:
        """Of an MLP, a vocabulary or a projector of this width. Where tp does not divide it, each of its ranks has it
        whole, and uses it for its own rows.
        """
        return Part() if width % self.tp.of else self.tp


WHOLE_MODULE = Held()


@dataclass(frozen=True, slots=True)
class Split:
    """A parameter is one part of a whole along one of its dims, or of each of the sections that this one has."""

    dim: int
    part: Part
    over: Over
    sections: tuple[int, ...] = ()  # widths of the whole, one behind the other; (): it is one

    def spans(self, width: int) -> Iterator[tuple[int, int]]:
        """Of each section of a whole that is so wide: where this part begins, and ends."""
        begin = 0
        for section in self.sections or (width,):
            first, last = self.part.span(section)
            yield begin + first, begin + last
            begin += section


def whole_shape(shape: Sequence[int], splits: Sequence[Split]) -> list[int]:
    """Of a parameter of which a part has this shape."""
    whole = [*shape]
    for split in splits:
        whole[split.dim] *= split.part.of
    return whole


def part_of(whole: Tensor, splits: Sequence[Split]) -> Tensor:
    """One part of a whole parameter; a view, unless it has sections."""
    for split in splits:
        spans = split.spans(whole.shape[split.dim])
        found = [whole.narrow(split.dim, first, last - first) for first, last in spans]
        whole = found[0] if len(found) == 1 else torch.cat(found, split.dim)
    return whole


def put_part(whole: Tensor, splits: Sequence[Split], values: Tensor) -> None:
    """Values of one part into their places in the whole."""
    if not splits:
        whole.copy_(values)
        return
    split, rest, done = splits[0], splits[1:], 0
    for first, last in split.spans(whole.shape[split.dim]):
        width = last - first
        put_part(whole.narrow(split.dim, first, width), rest, values.narrow(split.dim, done, width))
        done += width


def copy_into(parameter: Tensor, values: Tensor) -> None:
    """All ranks that share a parameter have its values, of their one part: nothing is sent."""
    if isinstance(parameter, DTensor):
        shard = distribute_tensor(values, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.to_local().copy_(shard.to_local())
    else:
        parameter.copy_(values)


def splits_of(model: nn.Module) -> dict[str, tuple[Split, ...]]:
    """Parameter → how it was split. One that is not named is whole, and each rank of tp adds its tokens' gradient."""
    return {
        f"{prefix}.{name}" if prefix else name: splits
        for prefix, module in model.named_modules()
        for name, splits in getattr(module, "splits", {}).items()
        if any(split.part.of > 1 for split in splits)
    }


def expert_names(model: nn.Module) -> set[str]:
    """Parameters that hold the matrices, or biases, of experts along their first dim, in a mesh of their own."""
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if getattr(module, "are_experts", False)
        for name, _ in module.named_parameters()
    }
