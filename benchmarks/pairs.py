"""Two trainers in the same processes, in turns: how much longer one takes than the other."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.registry import Figures

PAIRS, WARM = 30, 2
LOW, HIGH = 9, 20  # of 30 sorted ratios: the binomial 95 % interval of their median


class Took(NamedTuple):
    """One step of one trainer."""

    wall_s: float
    cpu_s: float  # of all ranks: what else runs on the machine does not count


def timed(step: Callable[[], object]) -> Took:
    """Every rank calls it."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    dist.barrier()
    took = torch.tensor([time.process_time() - cpu], dtype=torch.float64)
    wall = time.perf_counter() - wall
    dist.all_reduce(took)
    return Took(wall, took.item())


def in_turns(ours: Callable[[], object], other: Callable[[], object]) -> list[tuple[Took, Took]]:
    """Pairs, the first of each in turn, behind a few that do not count."""
    pairs = []
    for number in range(WARM + PAIRS):
        if number % 2:
            first = timed(ours)
            pairs.append((first, timed(other)))
        else:
            second = timed(other)
            pairs.append((timed(ours), second))
    return pairs[WARM:]


def figures(pairs: Sequence[tuple[Took, Took]], other: str) -> Figures:
    """Medians of both, and of the ratios with its interval."""
    wall = [ours.wall_s / theirs.wall_s for ours, theirs in pairs]
    cpu = [ours.cpu_s / theirs.cpu_s for ours, theirs in pairs]
    return {
        "pairs": len(pairs),
        "step_seconds": round(median(ours.wall_s for ours, _ in pairs), 4),
        f"{other}_seconds": round(median(theirs.wall_s for _, theirs in pairs), 4),
        "overhead": round(median(wall) - 1, 4),
        "interval": interval(wall),
        "overhead_of_cpu_time": round(median(cpu) - 1, 4),
        "interval_of_cpu_time": interval(cpu),
    }


def interval(ratios: Sequence[float]) -> list[float]:
    ordered = sorted(ratios)
    return [round(ordered[LOW] - 1, 4), round(ordered[HIGH] - 1, 4)]
