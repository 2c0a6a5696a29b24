"""Activations offloaded to host memory between the forward and the backward of a micro-batch (MEMO, arXiv 2407.12117).

The same share of every layer's activations is offloaded after its forward, in whole storages, except of the first and
last layers of a chunk; it is fetched during the backward of the following layer. On a GPU copies run on streams of
their own, from and to pinned memory. Parameters and tensors that layers share are not offloaded.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from planner.models.autograd.saved_tensors import Restore, packing_saved_tensors


class HostCopier:
    """Copies between one device and its host. On a CPU copies are synchronous."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        on_gpu = device.type == "cuda"
        self.to_host_stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self.to_device_stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]

    def to_host(self, x: Tensor) -> tuple[Tensor, Any]:
        """A copy of x (any shape) in host memory, and the event of its completion."""
        if self.to_host_stream is None:
            return x.clone(), None
        host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        self.to_host_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.to_host_stream):
            host.copy_(x, non_blocking=True)
        x.record_stream(self.to_host_stream)
        return host, self.to_host_stream.record_event()

    def to_device(self, host: Tensor, target: Tensor, after: Any) -> Any:
        """Copy host memory to `target` (of the same shape) after event `after`; returns the event of its completion."""
        if self.to_device_stream is None:
            target.copy_(host)
            return None
        self.to_device_stream.wait_stream(torch.cuda.current_stream(self.device))  # which may still use the memory
        self.to_device_stream.wait_event(after)
        with torch.cuda.stream(self.to_device_stream):
            target.copy_(host, non_blocking=True)
        target.record_stream(self.to_device_stream)
        return self.to_device_stream.record_event()

    def wait_for(self, event: Any) -> None:
        """Let the current stream wait for an event."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)


class OffloadedStorage:
    """One storage of activations that is in host memory."""

    def __init__(self, memory: Tensor, mover: HostCopier) -> None:
        self.copier, self.size = mover, len(memory)
        self.host: Tensor | None
        self.host, self.copied_out = mover.to_host(memory)
        self.pending_uses = 0
        self.memory: Tensor | None = None
        self.copied_back: Any = None

    def fetch(self) -> Tensor:
        """Start copying it back, unless that has started; gives the memory `(bytes)`."""
        if self.memory is None:
            assert self.host is not None, "used as often as it was saved"
            self.memory = torch.empty(self.size, dtype=torch.uint8, device=self.copier.device)
            self.copied_back = self.copier.to_device(self.host, self.memory, self.copied_out)
        return self.memory

    def add_use(self, x: Tensor) -> Restore:
        """How to restore one saved tensor x (any shape) in this storage."""
        dtype, shape, stride, offset = x.dtype, x.shape, x.stride(), x.storage_offset()
        self.pending_uses += 1

        def restore() -> Tensor:
            memory, self.pending_uses = self.fetch(), self.pending_uses - 1
            self.copier.wait_for(self.copied_back)
            if not self.pending_uses:
                self.memory = self.copied_back = self.host = None
            restored = torch.empty(0, dtype=dtype, device=self.copier.device)
            return restored.set_(memory.untyped_storage(), offset, shape, stride)

        return restore


class SavedLayerTensors:
    """What one layer saves of one micro-batch."""

    def __init__(self, offload: "ActivationOffload", stay: Iterable[Tensor]) -> None:
        self.offload, self.offloaded = offload, dict[int, OffloadedStorage]()
        self.resident = {storage_address(x) for x in stay}
        self.kept_alive: list[Tensor] = []  # until the end of the forward, so that no address is reused

    def pack(self, x: Tensor) -> Restore | None:
        """The hook for a saved tensor x (any shape): None where it stays on the device."""
        if not x.is_floating_point() or not x.numel() or is_parameter(x) or storage_address(x) in self.resident:
            return None
        key = storage_address(x)
        if key not in self.offloaded:
            self.kept_alive.append(x.detach())
            if not self.offload.should_offload(x.untyped_storage().nbytes()):
                self.resident.add(key)
                return None
            memory = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())
            self.offloaded[key] = OffloadedStorage(memory, self.offload.copier)
        return self.offloaded[key].add_use(x)

    def fetch(self, *_: object) -> None:
        """Start fetching all storages of this layer."""
        for storage in self.offloaded.values():
            storage.fetch()


class ActivationOffload:
    """The offload of one micro-batch in one chunk of layers."""

    def __init__(self, ratio: float, mover: HostCopier) -> None:
        self.ratio, self.copier = ratio, mover
        self.owed_bytes = 0.0  # bytes still to offload of the share of all saved so far; negative: too many were
        self.host_bytes = 0

    def should_offload(self, size: int) -> bool:
        """Whether to offload a storage of `size` bytes: where that brings the offloaded share closer to the ratio."""
        self.owed_bytes += self.ratio * size
        offloaded = self.ratio > 0 and 2 * self.owed_bytes >= size
        if offloaded:
            self.owed_bytes -= size
            self.host_bytes += size
        return offloaded

    @contextmanager
    def layer_activations(self, stay: Iterable[Tensor]) -> Iterator[SavedLayerTensors]:
        """A block around the forward of one layer; `stay` are tensors (any shapes) that are not offloaded."""
        box = SavedLayerTensors(self, stay)
        with packing_saved_tensors(box.pack):
            yield box
        box.kept_alive.clear()


_offload: ContextVar[ActivationOffload | None] = ContextVar("offload", default=None)


@contextmanager
def offloading_activations(offload: ActivationOffload | None) -> Iterator[None]:
    """Offload activations of layers run in the block; with None they stay on the device."""
    token = _offload.set(offload)
    try:
        yield
    finally:
        _offload.reset(token)


def run_layers(layers: Iterable[nn.Module], x: Tensor, shared: Iterable[Tensor], *rest: object) -> Tensor:
    """Send x `(tokens, hidden)` through the layers in turn, each called with `rest`: `(tokens, hidden)`. `shared` are
    tensors that all layers are given, which are not offloaded.
    """
    chunk, offload, previous = [*layers], _offload.get(), None
    for index, layer in enumerate(chunk):
        offloads = 0 < index < len(chunk) - 1 and torch.is_grad_enabled()
        with offload.layer_activations(shared) if offload is not None and offloads else nullcontext() as box:
            x = layer(x, *rest)
        if previous is not None:
            x.register_hook(previous.fetch)  # type: ignore[no-untyped-call]
        previous = box
    return x


def storage_address(x: Tensor) -> int:
    """The address of the storage that x (any shape) is in."""
    return x.untyped_storage().data_ptr()


def is_parameter(x: Tensor) -> bool:
    """Whether x (any shape) is a parameter or a view of one."""
    return isinstance(x if x._base is None else x._base, nn.Parameter)
