"""What ranks do that meet once a step, up to ByteScale's first half (arXiv 2502.21231): before anything is balanced.

static   One degree for all sequences: the least power of two that holds the longest without offloading. Sequences are
         packed in the order they arrive, each into the fullest group that has room (best fit).
naive    Hybrid data parallelism: a sequence beyond what one rank holds gets a group of its own, of the fewest ranks
         that hold it, D(s); shorter ones are packed for one rank each, by best fit.

Groups go to ranks in the order in which they were made, each to the first micro-batch whose ranks have room for it.
"""

from dataclasses import replace

from benchmarks.baselines.best_fit import best_fit_bins
from benchmarks.baselines.groups import homogeneous, powers_of_two
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import PackedGroup, Packing
from planner.packing.rank_placement import FreeNodes, NodeTable, make_nodes


def static(problem: PackingProblem) -> Packing | None:
    longest = max(problem.sizes.values())
    degree = next((shape for shape in powers_of_two(problem) if problem.shapes[shape].room >= longest), None)
    if degree is None:
        return None
    return homogeneous(problem, degree, best_fit_bins(problem, sorted(problem.sizes), problem.shapes[degree].room))


def naive(problem: PackingProblem) -> Packing | None:
    return dealt(replace(problem, offload=None))


def naive_offloaded(problem: PackingProblem) -> Packing | None:
    """D(s) counts what is left of a sequence when as much is offloaded as hides behind its computing."""
    return dealt(problem)


def dealt(problem: PackingProblem) -> Packing | None:
    fewest = {item: min(problem.choices(item), default=None) for item in sorted(problem.sizes)}
    if None in fewest.values():
        return None
    short = [item for item, size in problem.sizes.items() if size <= problem.shapes[0].room]
    long = [PackedGroup(fewest[item], (item,)) for item in fewest if item not in {*short}]
    bins = best_fit_bins(problem, sorted(short), problem.shapes[0].room)
    return first_rows(problem, [*long, *(PackedGroup(0, held) for held in bins)])


def first_rows(problem: PackingProblem, groups: list[PackedGroup]) -> Packing:
    """Each group in the first micro-batch with ranks for it."""
    nodes = make_nodes(problem)
    free: list[FreeNodes] = []  # of each micro-batch
    rows: list[list[PackedGroup]] = []
    for group in groups:
        degree = problem.shapes[group.shape].degree
        row, first = first_place(nodes, group.shape, degree, free)
        if row == len(rows):
            rows.append([])
        rows[row].append(replace(group, first_rank=first))
    return tuple(tuple(row) for row in rows)


def first_place(nodes: NodeTable, shape: int, degree: int, free: list[FreeNodes]) -> tuple[int, int]:
    """Micro-batch and first rank; a new micro-batch where none has room."""
    for row, ranks in enumerate(free):
        first = ranks.place_group(shape, degree)
        if first is not None:
            return row, first
    free.append(FreeNodes(nodes))
    first = free[-1].place_group(shape, degree)
    if first is None:
        raise ValueError(f"no {degree} ranks make a group")
    return len(free) - 1, first
