"""Measures collectives over groups of one size, in all groups of that size at once, as they run in a plan.

In a step, ranks compute between collectives. On a CPU that makes these slower than back to back: caches hold other
data, and sleeping threads are woken on busy cores. So each is timed after some compute. Point-to-point messages are
posted ahead and overlap with compute: these are timed back to back.
"""

from collections.abc import Callable

import torch

from planner.launch.communication import ProcessGroups, prepare
from planner.profiling.device_timing import time_after_work, time_synchronised
from planner.profiling.measurement import Measurement, TimeSpan
from planner.profiling.measurement_grid import group_sizes

# Width of the square matrices that are multiplied between two collectives, for some milliseconds: on a CPU they fill
# the caches, on a GPU they hide the launch of the collective.
WIDTH = {"cpu": 512, "cuda": 4096}


class CollectiveBench:
    """Runs measurements of collectives. Every rank runs the same one at the same time, in its own group."""

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        self.rank, self.device = rank, device
        self.matrix = torch.ones(WIDTH[device.type], WIDTH[device.type], device=device)
        self.groups = ProcessGroups(
            block(first, size) for size in group_sizes(ranks) for first in range(0, ranks, size)
        )

    def run(self, measurement: Measurement) -> list[TimeSpan]:
        size, message = measurement.sizes
        call = self.prepared(measurement, size, message)
        if measurement.kind == "p2p":
            return [time_synchronised(lambda: [call() for _ in range(measurement.repeats)], self.device)]
        return time_after_work(lambda: self.matrix @ self.matrix, call, measurement.repeats, self.device)

    def prepared(self, measurement: Measurement, size: int, message: int) -> Callable[[], None]:
        group = self.groups[block(self.rank - self.rank % size, size)]
        return prepare(measurement.kind, group, message, self.device)  # type: ignore[arg-type]


def block(first: int, size: int) -> tuple[int, ...]:
    return tuple(range(first, first + size))
