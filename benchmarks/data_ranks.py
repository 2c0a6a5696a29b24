"""Ranks that meet once a step: ours beside one static degree and beside naive hybrid data parallelism.

`byted` is the ablation in ByteScale's order (arXiv 2502.21231): static, dynamic ranks per sequence, offload, balance,
each as a speed-up over static, with the time of the last rank over the mean time that ranks work. `flexsp` is FlexSP's
own batches as scheduling alone, without offload, by what degrees are allowed.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.baselines.hdp import naive, naive_offloaded, static
from benchmarks.baselines_table import Way, require_legal
from benchmarks.data_ranks_jobs import RANKS, byted, flexsp
from benchmarks.registry import Figures
from planner.costs.sequences import Sequences
from planner.packing.packed import Packed, last_end, worth
from planner.strategies.data_ranks import pack
from planner.verify.streams import stream_seconds

EFFORT = 2  # that jobs have when they name none


def ours(problem: Sequences) -> Packed | None:
    return pack(problem, EFFORT)[0]


ABLATION: dict[str, Way] = {
    "static": static,
    "+ dynamic ranks": naive,
    "+ offload": naive_offloaded,
    "+ balance (planner)": ours,
}


def run(data: Path | None) -> Iterator[Figures]:
    for ranks in RANKS:
        mix = byted(ranks)
        for line in ablation(mix.problem):
            yield {"workload": "byted", "clipped": mix.clipped, **line}
    for batch, allowed, problem in flexsp(data) if data else ():
        packed, seconds = timed(ours, problem)
        yield {
            "workload": "wikipedia (released)",
            "batch": batch,
            "degrees": allowed,
            **reached(problem, packed),
            "seconds": round(seconds, 3),
        }


def ablation(problem: Sequences) -> Iterator[Figures]:
    """Every way, over the first."""
    slowest = None
    for name, way in ABLATION.items():
        packed, seconds = timed(way, problem)
        value = worth(problem, packed)
        slowest = slowest or value
        yield {
            "ranks": problem.ranks,
            "sequences": len(problem.sizes),
            "tokens": problem.tokens,
            "longest": max(problem.sizes.values()),
            "way": name,
            **reached(problem, packed),
            "speed_up": round(slowest / value, 2),
            "seconds": round(seconds, 3),
        }


def timed(way: Way, problem: Sequences) -> tuple[Packed, float]:
    start = perf_counter()
    packed = way(problem)
    seconds = perf_counter() - start
    if packed is None:
        raise ValueError("a way found no packing")
    require_legal(problem, packed, way.__name__)
    return packed, seconds


def reached(problem: Sequences, packed: Packed) -> Figures:
    value, busy = worth(problem, packed), busy_seconds(problem, packed)
    bound = stream_seconds(problem, value, EFFORT)
    return {
        "value_ms": round(value * 1e3, 1),
        "bound_ms": round(bound * 1e3, 1),
        "over_bound": round(value / bound - 1, 4),
        "last_over_mean": round(last_end(problem, packed) / float(busy.mean()), 3),
        "max_over_mean": round(float(busy.max() / busy.mean()), 3),
        "micro_batches": [int(count) for count in micro_batches(problem, packed)],
    }


def busy_seconds(problem: Sequences, packed: Packed) -> np.ndarray:
    """Of every rank, what it works: waiting for the others of a group is not counted."""
    busy = np.zeros(problem.ranks)
    for row in packed:
        for group in row:
            ranks = slice(group.first, group.first + problem.shapes[group.shape].degree)
            busy[ranks] += problem.seconds(group.shape, group.items)
    return busy


def micro_batches(problem: Sequences, packed: Packed) -> tuple[int, int]:
    """The fewest and the most that a rank runs."""
    count = np.zeros(problem.ranks, dtype=np.int64)
    for row in packed:
        for group in row:
            count[group.first : group.first + problem.shapes[group.shape].degree] += 1
    return count.min(), count.max()
