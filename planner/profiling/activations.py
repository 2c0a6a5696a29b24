"""What autograd keeps from forward to backward: the distinct storages that it saves, without the parameters."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


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
