"""Which part of a full tensor a rank holds: along each dimension some of its indices, in one or more spans.

Sharding over tp, over experts and by FSDP2 each selects indices along one dimension. So every shard is such a part,
whatever the layout is, and what two of them share is found dimension by dimension.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from planner.models.sharding import ParameterSplit, full_shape


class Span(NamedTuple):
    """Consecutive indices."""

    first: int
    last: int  # exclusive


class Shared(NamedTuple):
    """Indices of one dimension that two regions have: at which place of each, and how many."""

    place: int
    other_place: int
    size: int


@dataclass(frozen=True, slots=True)
class TensorRegion:
    """The part of a tensor of shape `full` that has, along each dimension, the indices of its spans, in their order."""

    full: tuple[int, ...]
    spans: tuple[tuple[Span, ...], ...]  # by dimension

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(sum(last - first for first, last in of_dim) for of_dim in self.spans)

    @property
    def numbers(self) -> int:
        """How many numbers the region has: the product of its shape."""
        return prod(self.shape)

    def select(self, dim: int, places: Iterable[tuple[int, int]]) -> "TensorRegion":
        """The part of this region with these places (first and last, exclusive) along a dimension of its own shape."""
        chosen = tuple(span for first, last in places for span in cut(self.spans[dim], first, last))
        return TensorRegion(self.full, (*self.spans[:dim], chosen, *self.spans[dim + 1 :]))


def whole_region(shape: Sequence[int]) -> TensorRegion:
    """All of a tensor."""
    return TensorRegion(tuple(shape), tuple((Span(0, size),) for size in shape))


def held_region(tensor: Tensor, splits: Sequence[ParameterSplit]) -> TensorRegion:
    """What this rank holds of a tensor that is sharded by `splits`, and as a DTensor by FSDP2; of a scalar, all."""
    splits = splits if tensor.dim() else ()
    region = whole_region(full_shape(tensor.shape, splits))
    for split in splits:
        region = region.select(split.dim, split.spans(region.shape[split.dim]))
    if isinstance(tensor, DTensor):
        for mesh_dim, placement in enumerate(tensor.placements):
            if isinstance(placement, Shard):
                mesh, width = tensor.device_mesh, region.shape[placement.dim]
                own = chunk(width, mesh.get_local_rank(mesh_dim), mesh.size(mesh_dim))
                region = region.select(placement.dim, [own])
    return region


def held_values(tensor: Tensor) -> Tensor:
    """The numbers that this rank holds, of the shape of `held_region`."""
    held: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return held.detach()


def copy_shared(into: Tensor, region: TensorRegion, values: Tensor, other: TensorRegion) -> int:
    """Copy into a tensor, which is `region`, what `values`, which are `other`, have of it; how many numbers that is."""
    copied = 0
    for parts in product(*(list(shared(*spans)) for spans in zip(region.spans, other.spans, strict=True))):
        target, source = into, values
        for dim, (place, other_place, size) in enumerate(parts):
            target, source = target.narrow(dim, place, size), source.narrow(dim, other_place, size)
        target.copy_(source)
        copied += source.numel()
    return copied


def chunk(width: int, index: int, count: int) -> Span:
    """One of `count` chunks as torch makes them: equal, but for the last ones, which may be smaller or empty."""
    size = -(-width // count)
    return Span(min(width, index * size), min(width, (index + 1) * size))


def cut(spans: Iterable[Span], first: int, last: int) -> Iterator[Span]:
    """What lies between two places, counted over all spans."""
    begin = 0
    for span in spans:
        low, high = max(first, begin), min(last, begin + span.last - span.first)
        if low < high:
            yield Span(span.first + low - begin, span.first + high - begin)
        begin += span.last - span.first


def shared(spans: Sequence[Span], others: Sequence[Span]) -> Iterator[Shared]:
    """Indices that are in both."""
    place = 0
    for first, last in spans:
        other_place = 0
        for begin, end in others:
            low, high = max(first, begin), min(last, end)
            if low < high:
                yield Shared(place + low - first, other_place + low - begin, high - low)
            other_place += end - begin
        place += last - first
