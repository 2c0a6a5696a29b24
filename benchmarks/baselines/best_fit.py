"""The best homogeneous degree for each batch, filled by best fit: what FlexSP calls BatchAda (arXiv 2412.01523).

For every degree, sequences go longest first into the group in which they leave the fewest tokens free, and into a new
group where none has room (best fit decreasing). Groups are sorted by time and cut into micro-batches; the degree whose
step is shortest is taken. Memory is filled, time is not balanced.
"""

from bisect import bisect_left, insort

from benchmarks.baselines.groups import Bin, homogeneous, longest_first, powers_of_two, slowest_first
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import Packing, packing_seconds


def best_fit(problem: PackingProblem) -> Packing | None:
    longest = max(problem.sizes.values())
    found = []
    for shape in powers_of_two(problem):
        if problem.shapes[shape].room >= longest:
            bins = best_fit_bins(problem, longest_first(problem), problem.shapes[shape].room)
            found.append(homogeneous(problem, shape, slowest_first(problem, shape, bins)))
    return min(found, key=lambda packed: packing_seconds(problem, packed), default=None)


def best_fit_bins(problem: PackingProblem, items: list[int], room: int) -> list[Bin]:
    """Items, in this order, each into the fullest bin that has room for it; a bin holds `room` tokens."""
    left: list[tuple[int, int]] = []  # rising: tokens left, bin
    bins: list[list[int]] = []
    for item in items:
        size = problem.sizes[item]
        at = bisect_left(left, (size, -1))
        if at == len(left):
            rest, number = room, len(bins)
            bins.append([])
        else:
            rest, number = left.pop(at)
        bins[number].append(item)
        insort(left, (rest - size, number))
    return [tuple(held) for held in bins]
