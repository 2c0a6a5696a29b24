"""A chain of layers cut into parts, so that the one that takes longest takes as little as can be: exactly."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from planner.specs.base import Layers


def level_parts(seconds: Sequence[float], parts: int) -> tuple[Layers, ...]:
    """So many parts, none empty, of layers that take these seconds: with the least maximum, and within it each as near
    as can be to an even share of what is left for it and those behind it.
    """
    sums, count = [0.0, *accumulate(seconds)], len(seconds)
    limits = sorted({sums[last] - sums[first] for last in range(1, count + 1) for first in range(last)})
    limit = limits[bisect_left(limits, True, key=lambda each: fewest_parts(sums, each)[0] <= parts)]
    fewest, first, found = fewest_parts(sums, limit), 0, list[Layers]()
    for left in range(parts, 0, -1):
        even = sums[first] + (sums[-1] - sums[first]) / left
        able = (
            last
            for last in range(first + 1, count - left + 2)
            if sums[last] - sums[first] <= limit and fewest[last] < left
        )
        last = min(able, key=lambda last: (abs(sums[last] - even), last))
        found.append(Layers(range(first, last)))
        first = last
    return tuple(found)


def fewest_parts(sums: Sequence[float], limit: float) -> list[int]:
    """The fewest parts for all layers from each one on, none of which takes longer; more than there are layers where a
    layer does. `sums`: seconds of the layers before each.
    """
    count = len(sums) - 1
    fewest = [count + 1] * count + [0]
    for first in range(count - 1, -1, -1):
        fewest[first] = 1 + min(
            (fewest[last] for last in range(first + 1, count + 1) if sums[last] - sums[first] <= limit), default=count
        )
    return fewest
