"""What autograd keeps from forward to backward: the distinct storages that it saves, without the parameters."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from planner.models.batch import Batch
from planner.models.build import build, init_weights
from planner.profiling.grid import DEPTH
from planner.profiling.sharded import Stack
from planner.specs.base import changed
from planner.specs.model import Module


def module_kept(spec: Module, batch: Batch, dtype: torch.dtype, device: torch.device) -> tuple[float, float]:
    """Bytes of a batch that one layer, and that the ends, keep for their backward."""
    stack = Stack(spec, DEPTH, dtype, device)
    ends = build(changed(spec, layers=0), dtype=dtype, device=device)
    for model in (stack, ends):
        init_weights(model, 0)
    x = torch.randn(len(batch.positions), spec.hidden, dtype=dtype, device=device, requires_grad=True)
    rotary = ends.rotary(x, batch)
    table = rotary or ()  # shared by all layers
    layers = kept_bytes(lambda: stack(x, rotary, batch), [*stack.parameters(), *table])
    outside = kept_bytes(lambda: ends(batch), ends.parameters())
    return layers / DEPTH, outside + sum(part.nbytes for part in table)


def kept_bytes(call: Callable[[], Tensor], known: Iterable[Tensor]) -> int:
    """Bytes kept alive for the backward of `call`, storages of the `known` tensors left out."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in known}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks: AbstractContextManager[None] = saved_tensors_hooks(pack, lambda tensor: tensor)
    with torch.enable_grad(), hooks:
        result = call()
    del result  # until here it held what was packed, so no storage was given out twice
    return sum(found.values())
