"""What baselines share: bins of sequences become micro-batches of groups, and groups get their ranks."""

from collections.abc import Sequence

from planner.costs.packing_problem import PackingProblem
from planner.packing.balanced import group_starts
from planner.packing.packed_groups import PackedGroup, Packing, canonical_order
from planner.packing.rank_placement import place_packing as on_ranks

Bin = tuple[int, ...]  # items


def longest_first(problem: PackingProblem) -> list[int]:
    return sorted(problem.sizes, key=lambda item: (-problem.sizes[item], item))


def powers_of_two(problem: PackingProblem) -> list[int]:
    """Shapes, by rising degree."""
    return [number for number, shape in enumerate(problem.shapes) if shape.degree & (shape.degree - 1) == 0]


def homogeneous(problem: PackingProblem, shape: int, bins: Sequence[Bin]) -> Packing:
    """Bins, in the order given, as groups of one shape: as many to a micro-batch as the ranks make."""
    groups = len(group_starts(problem, shape))
    rows = [bins[start : start + groups] for start in range(0, len(bins), groups)]
    return placed(problem, [[PackedGroup(shape, held) for held in row] for row in rows])


def slowest_first(problem: PackingProblem, shape: int, bins: Sequence[Bin]) -> list[Bin]:
    """So that micro-batches hold groups of like duration."""
    return sorted(bins, key=lambda held: (-problem.seconds(shape, held), held))


def placed(problem: PackingProblem, rows: Sequence[Sequence[PackedGroup]]) -> Packing:
    """Every group on ranks of its own, the widest of a micro-batch first: powers of two then leave no holes."""
    packed = on_ranks(problem, [[(group.shape, group.items) for group in row] for row in rows])
    if packed is None:
        raise ValueError("a baseline gave a micro-batch more groups than its ranks make")
    return canonical_order(packed, problem)
