"""One rank of a profile: runs its measurements in order, and reports the spans of each."""

from collections.abc import Sequence

from planner.launch import Worker, joined_world
from planner.profiling.collective_bench import CollectiveBench
from planner.profiling.measurement import COLLECTIVES, Measurement, TimeSpan
from planner.profiling.module_bench import ModuleBench
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

RankReport = tuple[int, list[TimeSpan]]  # index of the measurement, its spans on this rank


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
