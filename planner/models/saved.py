"""What becomes of what a forward saves for its backward, decided one within another: torch itself asks the innermost.

Where nobody wants a tensor, autograd keeps it as ever.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

Back = Callable[[], Tensor]  # the tensor again, without its history
Pack = Callable[[Tensor], Back | None]  # from what is saved; None: not mine

_packs: ContextVar[tuple[Pack, ...]] = ContextVar("packs", default=())


@contextmanager
def saving(pack: Pack) -> Iterator[None]:
    """`pack` is asked first, then whoever surrounds it."""
    token = _packs.set((pack, *_packs.get()))
    try:
        with torch.autograd.graph.saved_tensors_hooks(kept, lambda back: back()):
            yield
    finally:
        _packs.reset(token)


def kept(x: Tensor) -> Back:
    """As the first to want it keeps it."""
    for pack in _packs.get():
        back = pack(x)
        if back is not None:
            return back
    held = x.detach()
    return lambda: held
