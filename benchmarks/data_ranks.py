"""Ranks that meet once a step: ours beside one static degree and beside naive hybrid data parallelism.

On ByteScale's mix, its ablation in its order (arXiv 2502.21231): static, dynamic ranks per sequence, offload, balance;
then ours without offload. On FlexSP's own batches, scheduling alone: no offload, by what degrees are allowed.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import floor
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.hdp import naive, naive_offloaded, static
from benchmarks.baselines_table import Way, require_legal
from benchmarks.data_ranks_jobs import RANKS, byted, flexsp
from benchmarks.registry import Figures
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import Packing, last_rank_end, packing_seconds
from planner.scoring.bounds.stream_bound import stream_seconds
from planner.strategies.data_ranks import pack

EFFORT = 2  # that jobs have when they name none


def ours(problem: PackingProblem) -> Packing | None:
    return pack(problem, EFFORT)[0]


def without_offload(problem: PackingProblem) -> Packing | None:
    return ours(replace(problem, offload=None))


ABLATION: dict[str, Way] = {
    "static": static,
    "+ dynamic ranks": naive,
    "+ offload": naive_offloaded,
    "+ balance (planner)": ours,
    "planner without offload": without_offload,
}


def run(data: Path | None) -> Iterator[Figures]:
    for ranks in RANKS:
        mix = byted(ranks)
        known = {"workload": "byted", "clipped": mix.clipped, "longest": max(mix.problem.sizes.values())}
        yield from ({**known, **line} for line in ablation(mix.problem))
    for batch, allowed, problem in flexsp(data) if data else ():
        known = {"workload": "wikipedia (released)", "batch": batch, "degrees": allowed}
        yield from ({**known, **line} for line in compared(problem, {"planner": ours}))


def ablation(problem: PackingProblem) -> Iterator[Figures]:
    """Every way, and how many times faster than the first it is."""
    lines = [*compared(problem, ABLATION)]
    yield from ({**line, "speed_up": round(lines[0]["value_ms"] / line["value_ms"], 2)} for line in lines)


def compared(problem: PackingProblem, ways: dict[str, Way]) -> Iterator[Figures]:
    """The figures of every way, over one bound."""
    found = {name: timed(way, problem) for name, way in ways.items()}
    bound = stream_seconds(problem, min(packing_seconds(problem, packed) for packed, _ in found.values()), EFFORT)
    for name, (packed, seconds) in found.items():
        yield {
            "ranks": problem.ranks,
            "sequences": len(problem.sizes),
            "tokens": problem.tokens,
            "way": name,
            **reached(problem, packed, bound),
            "seconds": round(seconds, 3),
        }


def timed(way: Way, problem: PackingProblem) -> tuple[Packing, float]:
    start = perf_counter()
    packed = way(problem)
    seconds = perf_counter() - start
    if packed is None:
        raise ValueError("a way found no packing")
    require_legal(on_device(problem, packed), packed, way.__name__)
    return packed, seconds


def on_device(problem: PackingProblem, packed: Packing) -> PackingProblem:
    """Sizes as what stays of them in the memory of their group's ranks."""
    sizes = dict(problem.sizes)
    for group in (group for row in packed for group in row):
        for item in group.items:
            if problem.offload_ratio(sizes[item], group.shape):
                sizes[item] = floor(problem.least_tokens(sizes[item]))
    return replace(problem, sizes=sizes)


def reached(problem: PackingProblem, packed: Packing, bound: float) -> Figures:
    """`last_over_mean`: when the last rank is done, over what ranks work on average."""
    value, busy = packing_seconds(problem, packed), busy_seconds(problem, packed)
    return {
        "value_ms": round(value * 1e3, 1),
        "bound_ms": round(bound * 1e3, 1),
        "over_bound": round(value / bound - 1, 4),
        "last_over_mean": round(last_rank_end(problem, packed) / float(busy.mean()), 3),
        "max_over_mean": round(float(busy.max() / busy.mean()), 3),
        "micro_batches": micro_batches(problem, packed),
    }


def busy_seconds(problem: PackingProblem, packed: Packing) -> NDArray[np.float64]:
    """Of every rank, what it works: waiting for the others of a group is not counted."""
    busy = np.zeros(problem.ranks)
    for row in packed:
        for group in row:
            ranks = slice(group.first_rank, group.first_rank + problem.shapes[group.shape].degree)
            busy[ranks] += problem.seconds(group.shape, group.items)
    return busy


def micro_batches(problem: PackingProblem, packed: Packing) -> tuple[int, int]:
    """The fewest and the most that a rank runs."""
    count = np.zeros(problem.ranks, dtype=np.int64)
    for row in packed:
        for group in row:
            count[group.first_rank : group.first_rank + problem.shapes[group.shape].degree] += 1
    return int(count.min()), int(count.max())
