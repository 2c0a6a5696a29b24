"""The best plan with one degree for everything: balanced, not packed. Always a candidate, and the warm start.

For every degree d and number of micro-batches M, sequences go longest first to the least loaded of M·N/d groups that
can hold them (LPT, Graham 1969); groups are then sorted by time, so that micro-batches hold groups of like duration.
"""

import heapq

from planner.costs.sequences import Sequences
from planner.packing.packed import Packed, PackedGroup, ordered, worth

EXTRA_MICRO_BATCHES = 8  # tried beyond the fewest that hold the tokens


def best_balanced(problem: Sequences) -> Packed | None:
    """The best homogeneous packing over degrees and numbers of micro-batches; None when no degree holds every item."""
    found = [packed for degree in problem.degrees if (packed := best_of_degree(problem, degree))]
    return min(found, key=lambda packed: worth(problem, packed), default=None)


def one_by_one(problem: Sequences) -> Packed:
    """Every item in a micro-batch of its own, on its fastest degree: the warm start where no one degree holds all."""
    rows = []
    for item in problem.sizes:
        fastest = min(problem.choices(item), key=lambda degree: problem.seconds(degree, (item,)))
        rows.append((PackedGroup(fastest, (item,)),))
    return ordered(tuple(rows), problem)


def best_of_degree(problem: Sequences, degree: int) -> Packed | None:
    """The best number of micro-batches for one degree."""
    groups = problem.ranks // degree
    if not groups or any(degree not in problem.choices(item) for item in problem.sizes):
        return None
    fewest = max(1, -(-problem.tokens // (groups * degree * problem.cap)))
    last = min(fewest + EXTRA_MICRO_BATCHES, max(fewest, -(-len(problem.sizes) // groups)))
    tried = (balanced(problem, degree, groups, count) for count in range(fewest, last + 1))
    found = [packed for packed in tried if packed]
    if not found:  # the cap cuts unluckily: one item to a group always fits
        found = [packed for packed in [balanced(problem, degree, groups, len(problem.sizes))] if packed]
    return min(found, key=lambda packed: worth(problem, packed), default=None)


def balanced(problem: Sequences, degree: int, groups: int, rows: int) -> Packed | None:
    """LPT over `rows` micro-batches of `groups` groups; None when an item fits nowhere."""
    line, room = problem.lines[degree], problem.cap * degree
    loads = [(0.0, number) for number in range(groups * rows)]  # a heap of (seconds, group)
    tokens = [0] * len(loads)
    held: list[list[int]] = [[] for _ in loads]
    for item in sorted(problem.sizes, key=lambda i: (-problem.sizes[i], i)):
        size = problem.sizes[item]
        passed = []
        while loads and tokens[loads[0][1]] + size > room:
            passed.append(heapq.heappop(loads))
        if not loads:
            return None
        seconds, number = loads[0]
        heapq.heapreplace(loads, (seconds + line.quad * size * size + line.lin * size, number))
        tokens[number] += size
        held[number].append(item)
        for entry in passed:
            heapq.heappush(loads, entry)
    slowest_first = [number for _, number in sorted(loads, key=lambda load: (-load[0], load[1]))]
    in_order = [PackedGroup(degree, tuple(held[number])) for number in slowest_first]
    packed = tuple(tuple(in_order[start : start + groups]) for start in range(0, len(in_order), groups))
    return ordered(packed, problem)
