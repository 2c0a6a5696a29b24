"""Activations in host memory between the forward and the backward of a micro-batch (MEMO, arXiv 2407.12117).

Of every layer of a chunk but the first and the last, the same share goes, behind the layer's forward, as near as whole
pieces of memory come to it; it comes back while the backward of the layer behind it runs. On a GPU both go on streams
of their own, from and to pinned memory. Parameters stay, and so does whatever layers share.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from planner.models.saved import Back, saving


class Mover:
    """The ways between one device and its host. A CPU copies, in order."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        on_gpu = device.type == "cuda"
        self.out = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self.back = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]

    def to_host(self, x: Tensor) -> tuple[Tensor, Any]:
        """A copy, and the event that ends it."""
        if self.out is None:
            return x.clone(), None
        host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        self.out.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.out):
            host.copy_(x, non_blocking=True)
        x.record_stream(self.out)
        return host, self.out.record_event()

    def to_device(self, host: Tensor, target: Tensor, after: Any) -> Any:
        """Into memory of the device, once `after` has come; the event that ends it."""
        if self.back is None:
            target.copy_(host)
            return None
        self.back.wait_stream(torch.cuda.current_stream(self.device))  # which may have used that memory last
        self.back.wait_event(after)
        with torch.cuda.stream(self.back):
            target.copy_(host, non_blocking=True)
        target.record_stream(self.back)
        return self.back.record_event()

    def wait(self, event: Any) -> None:
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)


class Away:
    """One piece of memory that activations lie in, on the host."""

    def __init__(self, memory: Tensor, mover: Mover) -> None:
        self.mover, self.size = mover, len(memory)
        self.host: Tensor | None
        self.host, self.left = mover.to_host(memory)
        self.uses = 0
        self.memory: Tensor | None = None
        self.came: Any = None

    def fetch(self) -> Tensor:
        """Start bringing it back, if nobody has."""
        if self.memory is None:
            assert self.host is not None, "used as often as it was saved"
            self.memory = torch.empty(self.size, dtype=torch.uint8, device=self.mover.device)
            self.came = self.mover.to_device(self.host, self.memory, self.left)
        return self.memory

    def use(self, x: Tensor) -> Back:
        """In place of a tensor that lies in it."""
        dtype, shape, stride, offset = x.dtype, x.shape, x.stride(), x.storage_offset()
        self.uses += 1

        def back() -> Tensor:
            memory, self.uses = self.fetch(), self.uses - 1
            self.mover.wait(self.came)
            if not self.uses:
                self.memory = self.came = self.host = None
            found = torch.empty(0, dtype=dtype, device=self.mover.device)
            return found.set_(memory.untyped_storage(), offset, shape, stride)

        return back


class Box:
    """What one layer saves of one micro-batch."""

    def __init__(self, offload: "Offload", stay: Iterable[Tensor]) -> None:
        self.offload, self.away = offload, dict[int, Away]()
        self.stay = {address(x) for x in stay}
        self.held: list[Tensor] = []  # until the forward is over, so that an address means one piece of memory

    def pack(self, x: Tensor) -> Back | None:
        if not x.is_floating_point() or not x.numel() or is_parameter(x) or address(x) in self.stay:
            return None
        key = address(x)
        if key not in self.away:
            self.held.append(x.detach())
            if not self.offload.takes(x.untyped_storage().nbytes()):
                self.stay.add(key)
                return None
            memory = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())
            self.away[key] = Away(memory, self.offload.mover)
        return self.away[key].use(x)

    def fetch(self, *_: object) -> None:
        for piece in self.away.values():
            piece.fetch()


class Offload:
    """Of one micro-batch on its way through a chunk of layers."""

    def __init__(self, ratio: float, mover: Mover) -> None:
        self.ratio, self.mover = ratio, mover
        self.owed = 0.0  # bytes of the share of what was saved so far, that have not gone; below zero: too many have
        self.host_bytes = 0

    def takes(self, size: int) -> bool:
        """Whether a piece of memory of so many bytes goes, whole: if the share is then nearer than without it."""
        self.owed += self.ratio * size
        goes = self.ratio > 0 and 2 * self.owed >= size
        if goes:
            self.owed -= size
            self.host_bytes += size
        return goes

    @contextmanager
    def box(self, stay: Iterable[Tensor]) -> Iterator[Box]:
        """Around the forward of one layer. What is in it lives as long as the graph."""
        box = Box(self, stay)
        with saving(box.pack):
            yield box
        box.held.clear()


_offload: ContextVar[Offload | None] = ContextVar("offload", default=None)


@contextmanager
def offloading(offload: Offload | None) -> Iterator[None]:
    """Where the layers of these forwards keep their activations; None: on the device."""
    token = _offload.set(offload)
    try:
        yield
    finally:
        _offload.reset(token)


def through(layers: Iterable[nn.Module], x: Tensor, shared: Iterable[Tensor], *rest: object) -> Tensor:
    """x through one layer after the other, each called with `rest`. `shared`: what all of them are given."""
    chunk, offload, before = [*layers], _offload.get(), None
    for place, layer in enumerate(chunk):
        moves = 0 < place < len(chunk) - 1 and torch.is_grad_enabled()
        with offload.box(shared) if offload is not None and moves else nullcontext() as box:
            x = layer(x, *rest)
        if before is not None:
            x.register_hook(before.fetch)  # type: ignore[no-untyped-call]
        before = box
    return x


def address(x: Tensor) -> int:
    """Of the memory that a tensor lies in, whole or in part."""
    return x.untyped_storage().data_ptr()


def is_parameter(x: Tensor) -> bool:
    return isinstance(x if x._base is None else x._base, nn.Parameter)
