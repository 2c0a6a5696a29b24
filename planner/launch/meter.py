"""How often, how much and how long: what the communication of a task cost this rank."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Meter:
    """Calls, bytes sent to other ranks, and seconds in which this rank's compute waited for them.

    On CUDA the seconds lie between events on the current stream, and reading them waits for the device.
    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0
        self._host_s = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def measure(self, device: torch.device, sent_bytes: int) -> Iterator[None]:
        self.calls += 1
        self.bytes += sent_bytes
        if device.type == "cuda":
            first, last = _event(), _event()
            first.record()
            yield
            last.record()
            self._events.append((first, last))
        else:
            began_s = time.perf_counter()
            yield
            self._host_s += time.perf_counter() - began_s

    def cut(self) -> "Meter":
        """What was measured since the last cut."""
        taken, new = Meter(), Meter()
        taken.__dict__, self.__dict__ = self.__dict__, new.__dict__
        return taken

    @property
    def seconds(self) -> float:
        for first, last in self._events:
            last.synchronize()
            self._host_s += first.elapsed_time(last) * 1e-3
        self._events.clear()
        return self._host_s


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
