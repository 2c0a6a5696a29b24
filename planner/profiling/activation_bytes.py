"""Activation memory: bytes of the distinct storages that autograd saves from forward to backward, without parameters.

Recomputed activations are not saved, so saved tensors are counted outside of the layer's own hooks
(models/autograd/saved_tensors.py): torch's hooks would not see what the hooks of a recomputing layer replace.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from planner.models import Batch, build, init_weights
from planner.models.autograd import packing_saved_tensors
from planner.models.layers import encoding_tensors
from planner.profiling.fsdp_without_communication import LayerStack
from planner.profiling.measurement import RECOMPUTE_KINDS
from planner.profiling.measurement_grid import STACK_LAYERS
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.parallelism import Recompute


class SavedBytes(NamedTuple):
    """Saved bytes of a batch: of one layer, of embedding and head, and of one layer under each recompute mode."""

    layer: float
    embedding_head: float
    recomputing: tuple[float, ...]


def module_activation_bytes(spec: Module, batch: Batch, dtype: torch.dtype, device: torch.device) -> SavedBytes:
    """Bytes that layers, and embedding and head, save for their backward."""
    stack = LayerStack(spec, STACK_LAYERS, dtype, device)
    embedding_head = build(with_fields(spec, layers=0), dtype=dtype, device=device)
    for model in (stack, embedding_head):
        init_weights(model, 0)
    x = torch.randn(len(batch.positions), spec.hidden, dtype=dtype, device=device, requires_grad=True)
    places = embedding_head.position_encoding(x, batch)
    table = encoding_tensors(places)  # shared by all layers

    def layer(how: Recompute) -> float:
        stack.set_recompute(how)
        return saved_bytes(lambda: stack(x, places, batch), [*stack.parameters(), *table]) / STACK_LAYERS

    outside = saved_bytes(lambda: embedding_head(batch), embedding_head.parameters())
    return SavedBytes(
        layer("none"), outside + sum(part.nbytes for part in table), tuple(layer(how) for how in RECOMPUTE_KINDS)
    )


def saved_bytes(call: Callable[[], Tensor], known: Iterable[Tensor]) -> int:
    """Bytes saved for the backward of `call`, without storages of the `known` tensors."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in known}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            saved[storage.data_ptr()] = storage.nbytes()

    with torch.enable_grad(), packing_saved_tensors(count):
        result = call()
    del result  # kept until here, so that no storage was freed and allocated again
    return sum(saved.values())
