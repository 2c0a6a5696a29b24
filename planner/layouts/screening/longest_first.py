"""How the sequences of a step fall into replicas and micro-batches: longest first, to the least loaded with room."""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush


def assign_least_loaded(
    items: Sequence[int], loads: Mapping[int, float] | Sequence[float], bins: int, room: int
) -> list[list[int]]:
    """Assign each item in turn to the least loaded bin with room for another; of equal ones to the first."""
    assigned: list[list[int]] = [[] for _ in range(bins)]
    least = [(0.0, bin_) for bin_ in range(bins)]
    for item in items:
        load, bin_ = heappop(least)
        assigned[bin_].append(item)
        if len(assigned[bin_]) < room:
            heappush(least, (load + loads[item], bin_))
    return assigned
