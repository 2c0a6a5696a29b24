"""Two trainers in the same processes, in turns: how much longer one takes than the other."""

import time
from collections.abc import Callable, Sequence
from math import comb
from statistics import median
from typing import NamedTuple

from benchmarks.registry import Figures

PAIRS, WARM = 30, 2


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


def in_turns(ours: Callable[[], object], other: Callable[[], object], pairs: int = PAIRS) -> list[tuple[Took, Took]]:
    """Pairs, the first of each in turn, behind a few that do not count."""
    took = []
    for number in range(WARM + pairs):
        if number % 2:
            first = timed(ours)
            took.append((first, timed(other)))
        else:
            second = timed(other)
            took.append((timed(ours), second))
    return took[WARM:]


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


def interval(ratios: Sequence[float]) -> list[float] | None:
    """The binomial 95 % interval of the median, less 1; None of so few that there is none."""
    ordered, below = sorted(ratios), 0.0
    for low in range(len(ordered) // 2 + 1):
        below += comb(len(ordered), low) / 2 ** len(ordered)  # that so many ratios or fewer are under the median
        if below > 0.025:
            break
    return [round(ordered[low - 1] - 1, 4), round(ordered[-low] - 1, 4)] if low else None
