"""DHP, dynamic hybrid parallelism (arXiv 2602.21788): memory first, then ranks by dynamic programming.

Sequences go longest first into the group in which they leave the fewest tokens free; where none has room, a new group
opens with the smallest degree that holds the sequence (best fit decreasing). Then, within a micro-batch, f(g, n) is the
shortest makespan of the first g groups on n ranks: f(g, n) = min over d of max(f(g − 1, n − d), T_g(d)), with d no
smaller than memory asks. So groups of any size share the ranks that memory leaves over.

Assumed, where the summary of the paper is silent: as few micro-batches as the smallest degrees need; groups are dealt
to them widest first, each to the first with room for it or each to the one with most ranks left, whichever ends sooner.
Degrees are those that have a price.
"""

import numpy as np

from benchmarks.baselines.groups import longest_first, placed
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import PackedGroup, Packing, packing_seconds


def dhp(problem: PackingProblem) -> Packing | None:
    smallest = memory_groups(problem)
    if smallest is None:
        return None
    found = [
        placed(problem, [widened(problem, row) for row in dealt(problem, smallest, spread)]) for spread in (False, True)
    ]
    return min(found, key=lambda packed: packing_seconds(problem, packed))


def memory_groups(problem: PackingProblem) -> list[PackedGroup] | None:
    """Groups of the smallest degree that memory allows; None when a sequence fits in none."""
    opened: list[tuple[int, list[int]]] = []  # shape, items
    left: list[int] = []  # tokens
    for item in longest_first(problem):
        size = problem.sizes[item]
        room, number = min(((room, n) for n, room in enumerate(left) if room >= size), default=(0, -1))
        if number < 0:
            choices = problem.choices(item)
            if not choices:
                return None
            number, room = len(opened), problem.shapes[choices[0]].room
            opened.append((choices[0], []))
            left.append(0)
        left[number] = room - size
        opened[number][1].append(item)
    return [PackedGroup(shape, tuple(items)) for shape, items in opened]


def dealt(problem: PackingProblem, groups: list[PackedGroup], spread: bool) -> list[list[PackedGroup]]:
    """Groups into as few micro-batches as hold them, like with like or spread over all."""
    degrees = [problem.shapes[group.shape].degree for group in groups]
    count = -(-sum(degrees) // problem.ranks)
    while True:
        rows: list[list[PackedGroup]] = [[] for _ in range(count)]
        free = [problem.ranks] * count
        for degree, group in sorted(zip(degrees, groups, strict=True), key=lambda pair: -pair[0]):
            fitting = [row for row in range(count) if free[row] >= degree]
            if not fitting:
                break
            row = max(fitting, key=lambda row: free[row]) if spread else fitting[0]
            rows[row].append(group)
            free[row] -= degree
        else:
            return rows
        count += 1


def widened(problem: PackingProblem, row: list[PackedGroup]) -> list[PackedGroup]:
    """The degrees that make a micro-batch shortest. f is an array over n, the ranks given out at most."""
    shortest = np.zeros(problem.ranks + 1)
    chosen = []
    for group in row:
        options = range(group.shape, len(problem.shapes))
        tried = np.full((len(options), problem.ranks + 1), np.inf)
        for number, shape in enumerate(options):
            degree = problem.shapes[shape].degree
            tried[number, degree:] = np.maximum(shortest[:-degree], problem.seconds(shape, group.items))
        chosen.append(group.shape + tried.argmin(axis=0))
        shortest = tried.min(axis=0)
    left, wide = problem.ranks, []
    for group, choice in zip(reversed(row), reversed(chosen), strict=True):
        wide.append(PackedGroup(int(choice[left]), group.items))
        left -= problem.shapes[wide[-1].shape].degree
    return wide
