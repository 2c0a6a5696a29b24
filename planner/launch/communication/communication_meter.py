"""Measures the communication of tasks on this rank: calls, bytes by kind, and seconds."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from planner.launch.traffic import TrafficKind


class CommunicationMeter:
    """Calls, bytes sent to other ranks by what they are for, and seconds in which this rank's compute waited.

    On CUDA the seconds are between events on the current stream, and reading them synchronises with the device.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self) -> None:
        self.calls = 0
        self.sent: Counter[TrafficKind] = Counter()
        self._host_s = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def measure(self, device: torch.device, kind: TrafficKind, sent_bytes: int) -> Iterator[None]:
        """Count one call that sends `sent_bytes`, and time the block."""
        self.calls += 1
        self.count(kind, sent_bytes)
        if device.type == "cuda":
            first, last = _event(), _event()
            first.record()
            yield
            last.record()
            self._events.append((first, last))
        else:
            start_s = time.perf_counter()
            yield
            self._host_s += time.perf_counter() - start_s

    def count(self, kind: TrafficKind, sent_bytes: int) -> None:
        """Count bytes for which nobody waits here."""
        self.sent[kind] += sent_bytes

    @property
    def bytes(self) -> int:
        """Bytes sent so far, of all kinds."""
        return self.sent.total()

    def take_measured(self) -> "CommunicationMeter":
        """What was measured since the last call of this method."""
        taken, new = CommunicationMeter(), CommunicationMeter()
        taken.__dict__, self.__dict__ = self.__dict__, new.__dict__
        return taken

    @property
    def seconds(self) -> float:
        """Seconds measured so far; waits for the device on CUDA."""
        for first, last in self._events:
            last.synchronize()
            self._host_s += first.elapsed_time(last) * 1e-3
        self._events.clear()
        return self._host_s


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
