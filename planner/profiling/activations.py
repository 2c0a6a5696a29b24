"""What is kept from forward to backward: the distinct storages that autograd saves, without the parameters.

What a layer makes again it does not keep, so whoever counts is asked behind the layer (models/saved.py): torch's own
hooks would hear nothing where the layer has hooks inside them.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from planner.models.batch import Batch
from planner.models.build import build, init_weights
from planner.models.places import tensors
from planner.models.saved import saving
from planner.profiling.grid import DEPTH
from planner.profiling.piece import AGAIN
from planner.profiling.sharded import Stack
from planner.specs.base import changed
from planner.specs.layers import Module
from planner.specs.parallelism import Recompute


class Kept(NamedTuple):
    """Bytes of a batch: one layer's, the ends', and those of one layer that makes something again, as in AGAIN."""

    layer: float
    ends: float
    again: tuple[float, ...]


def module_kept(spec: Module, batch: Batch, dtype: torch.dtype, device: torch.device) -> Kept:
    """What layers and ends keep for their backward."""
    stack = Stack(spec, DEPTH, dtype, device)
    ends = build(changed(spec, layers=0), dtype=dtype, device=device)
    for model in (stack, ends):
        init_weights(model, 0)
    x = torch.randn(len(batch.positions), spec.hidden, dtype=dtype, device=device, requires_grad=True)
    places = ends.places(x, batch)
    table = tensors(places)  # shared by all layers

    def layer(how: Recompute) -> float:
        stack.make_again(how)
        return kept_bytes(lambda: stack(x, places, batch), [*stack.parameters(), *table]) / DEPTH

    outside = kept_bytes(lambda: ends(batch), ends.parameters())
    return Kept(layer("none"), outside + sum(part.nbytes for part in table), tuple(layer(how) for how in AGAIN))


def kept_bytes(call: Callable[[], Tensor], known: Iterable[Tensor]) -> int:
    """Bytes kept alive for the backward of `call`, storages of the `known` tensors left out."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in known}
    found: dict[int, int] = {}

    def count(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            found[storage.data_ptr()] = storage.nbytes()

    with torch.enable_grad(), saving(count):
        result = call()
    del result  # until here it held what was packed, so no storage was given out twice
    return sum(found.values())
