"""Composable hooks for tensors that a forward saves for its backward: torch itself asks only the innermost hook.

Tensors that no hook takes are saved by autograd as usual.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

Restore = Callable[[], Tensor]  # the tensor, detached
PackHook = Callable[[Tensor], Restore | None]  # from a saved tensor of any shape; None: not taken by this hook

_packs: ContextVar[tuple[PackHook, ...]] = ContextVar("packs", default=())


@contextmanager
def packing_saved_tensors(pack: PackHook) -> Iterator[None]:
    """In this block saved tensors (of any shape) are offered to `pack` first, then to hooks of surrounding blocks."""
    token = _packs.set((pack, *_packs.get()))
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack_saved_tensor, lambda back: back()):
            yield
    finally:
        _packs.reset(token)


def pack_saved_tensor(x: Tensor) -> Restore:
    """How the first hook that takes x (any shape) restores it in backward."""
    for pack in _packs.get():
        back = pack(x)
        if back is not None:
            return back
    detached = x.detach()
    return lambda: detached
