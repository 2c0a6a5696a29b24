"""Activation memory: bytes of the distinct storages that autograd saves from forward to backward, without parameters.

Recomputed activations are not saved, so saved tensors are counted outside of the layer's own hooks (models/saved.py):
torch's hooks would not see what the hooks of a recomputing layer replace.
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
    """Saved bytes of a batch: of one layer, of embedding and head, and of one layer under each recompute mode."""

    layer: float
    ends: float
    again: tuple[float, ...]


def module_kept(spec: Module, batch: Batch, dtype: torch.dtype, device: torch.device) -> Kept:
    """Bytes that layers, and embedding and head, save for their backward."""
    stack = Stack(spec, DEPTH, dtype, device)
    embedding_head = build(changed(spec, layers=0), dtype=dtype, device=device)
    for model in (stack, embedding_head):
        init_weights(model, 0)
    x = torch.randn(len(batch.positions), spec.hidden, dtype=dtype, device=device, requires_grad=True)
    places = embedding_head.places(x, batch)
    table = tensors(places)  # shared by all layers

    def layer(how: Recompute) -> float:
        stack.make_again(how)
        return kept_bytes(lambda: stack(x, places, batch), [*stack.parameters(), *table]) / DEPTH

    outside = kept_bytes(lambda: embedding_head(batch), embedding_head.parameters())
    return Kept(layer("none"), outside + sum(part.nbytes for part in table), tuple(layer(how) for how in AGAIN))


def kept_bytes(call: Callable[[], Tensor], known: Iterable[Tensor]) -> int:
    """Bytes saved for the backward of `call`, without storages of the `known` tensors."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in known}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            saved[storage.data_ptr()] = storage.nbytes()

    with torch.enable_grad(), saving(count):
        result = call()
    del result  # kept until here, so that no storage was freed and allocated again
    return sum(saved.values())
