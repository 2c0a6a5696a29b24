"""GPU memory of a rank in a step: at its start, peak of its passes, peak of its updates.

torch's allocator counts allocated bytes and their peak since the last reset; peaks are reset at the start of a step and
before its updates. The allocator counts on the host, so nothing waits for the device.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from planner.runtime.run_result import RankMemory


class MemoryCounter(Protocol):
    """Counts allocated bytes of one device."""

    def allocated(self) -> int:
        """Bytes in tensors now."""

    def peaks(self) -> tuple[int, int]:
        """Peaks of allocated and of reserved bytes since the last reset."""

    def outside(self) -> int:
        """Bytes in use on the device now outside of this process's allocator."""

    def reset(self) -> None:
        """Resets the peaks to what is allocated now."""


@dataclass(frozen=True, slots=True)
class CudaMemoryCounter:
    """The counters of torch's CUDA allocator."""

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


def memory_counter(device: torch.device) -> MemoryCounter | None:
    """Counter of a device; None for the CPU, whose memory torch does not count."""
    return CudaMemoryCounter(device) if device.type == "cuda" else None


class StepMemory:
    """Measures each step: `begin`, passes, `end_passes`, updates, `end`."""

    def __init__(self, counter: MemoryCounter | None) -> None:
        self.counter = counter
        self.held = self.passes = self.reserved = 0

    def begin(self) -> None:
        """Called when all that the step begins with is allocated."""
        if self.counter:
            self.counter.reset()
            self.held = self.counter.allocated()

    def end_passes(self) -> None:
        """Called after the last pass and gradient reduction."""
        if self.counter:
            self.passes, self.reserved = self.counter.peaks()
            self.counter.reset()

    def end(self) -> RankMemory | None:
        """The memory of the step; None on the CPU."""
        if not self.counter:
            return None
        update, reserved = self.counter.peaks()
        return RankMemory(self.held, self.passes, update, max(self.reserved, reserved), self.counter.outside())
