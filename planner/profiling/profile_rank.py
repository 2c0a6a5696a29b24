"""One rank of a profile: runs its measurements in order, and reports the spans of each.

Collectives are measured over groups of one size, in all groups of that size at once, as they run in a plan. In a step,
ranks compute between collectives. On a CPU that makes these slower than back to back: caches hold other data, and
sleeping threads are woken on busy cores. So each is timed after some compute. Point-to-point messages are posted ahead
and overlap with compute: these are timed back to back.
"""

from collections.abc import Callable, Sequence

import torch

from planner.launch import Worker, joined_world
from planner.launch.communication import ProcessGroups, prepare
from planner.profiling.device_timing import time_after_work, time_synchronised
from planner.profiling.measurement import COLLECTIVES, Measurement, TimeSpan
from planner.profiling.measurement_grid import group_sizes
from planner.profiling.module_bench import ModuleBench
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

# Width of the square matrices that are multiplied between two collectives, for some milliseconds: on a CPU they fill
# the caches, on a GPU they hide the launch of the collective.
WIDTH = {"cpu": 512, "cuda": 4096}
RankReport = tuple[int, list[TimeSpan]]  # index of the measurement, its spans on this rank


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


def rank_main(worker: Worker, measurements: Sequence[Measurement], specs: dict[str, Module], dtype: Dtype) -> None:
    """Runs measurements, the same on every rank, those of one context together. Reports (index, spans) of each."""
    with joined_world(worker):
        bench: ModuleBench | CollectiveBench | None = None
        context, warm = "", set()
        for index, measurement in enumerate(measurements):
            worker.begin_task(f"profile/{measurement.kind}/{'+'.join(map(str, measurement.sizes))}")
            if bench is None or measurement.context != context:
                bench = None  # frees its memory before the next one allocates
                bench, context = make_bench(worker, measurement, specs, dtype), measurement.context
            if (context, measurement.kind) not in warm and measurement.kind != "kept":
                bench.run(measurement)  # warm-up; other first calls do not move a median
                warm.add((context, measurement.kind))
            report: RankReport = index, bench.run(measurement)
            worker.report(report)


def make_bench(
    worker: Worker, measurement: Measurement, specs: dict[str, Module], dtype: Dtype
) -> ModuleBench | CollectiveBench:
    if measurement.kind in COLLECTIVES:
        return CollectiveBench(worker.rank, worker.world_size, worker.device)
    return ModuleBench(specs[measurement.context], dtype, worker.device)
