"""What a rank's GPU holds in a step, by phase: as it begins, through its passes, and in what closes it.

torch counts what its allocator gives out, and the most of that since peaks were last reset: they are with the step, and
with its closing. These are counts of the host's: none waits for the device.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from planner.runtime.result import RankMemory


class Counter(Protocol):
    """Bytes of one device."""

    def allocated(self) -> int:
        """In tensors now."""

    def peaks(self) -> tuple[int, int]:
        """Most in tensors, and most that the allocator had of the device, since the last reset."""

    def outside(self) -> int:
        """In use on the device now, and not by this process's allocator."""

    def reset(self) -> None:
        """Peaks begin anew, with what there is now."""


@dataclass(frozen=True, slots=True)
class Cuda:
    """As torch counts on a GPU."""

    device: torch.device

    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    def peaks(self) -> tuple[int, int]:
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        return stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]

    def outside(self) -> int:
        free, total = torch.cuda.mem_get_info(self.device)
        return max(0, total - free - torch.cuda.memory_reserved(self.device))

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)


def counter_of(device: torch.device) -> Counter | None:
    """None: torch counts no memory of the CPU."""
    return Cuda(device) if device.type == "cuda" else None


class Watch:
    """One step after the other: `begin`, its passes, `close`, its updates, `end`."""

    def __init__(self, counter: Counter | None) -> None:
        self.counter = counter
        self.held = self.passes = self.reserved = 0

    def begin(self) -> None:
        """All that the step begins with is there."""
        if self.counter:
            self.counter.reset()
            self.held = self.counter.allocated()

    def close(self) -> None:
        """Its passes are over."""
        if self.counter:
            self.passes, self.reserved = self.counter.peaks()
            self.counter.reset()

    def end(self) -> RankMemory | None:
        """What it came to."""
        if not self.counter:
            return None
        update, reserved = self.counter.peaks()
        return RankMemory(self.held, self.passes, update, max(self.reserved, reserved), self.counter.outside())
