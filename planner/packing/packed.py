"""What packing returns: micro-batches of groups of items, and what they are worth."""

from dataclasses import dataclass

from planner.costs.sequences import Sequences


@dataclass(frozen=True, slots=True)
class PackedGroup:
    degree: int
    items: tuple[int, ...]


Packed = tuple[tuple[PackedGroup, ...], ...]  # micro-batches of groups


def worth(problem: Sequences, packed: Packed) -> float:
    """Seconds of the step: every micro-batch lasts as long as its slowest group."""
    rows = sum(makespan(problem, row) + problem.row_seconds for row in packed)
    return rows + problem.step_seconds


def makespan(problem: Sequences, row: tuple[PackedGroup, ...]) -> float:
    return max((problem.seconds(group.degree, group.items) for group in row), default=0.0)


def ordered(packed: Packed, problem: Sequences) -> Packed:
    """The same packing in one order: slowest micro-batch first, widest group first, items rising."""
    rows = [
        tuple(sorted((PackedGroup(g.degree, tuple(sorted(g.items))) for g in row if g.items), key=group_key))
        for row in packed
    ]
    return tuple(sorted((row for row in rows if row), key=lambda row: (-makespan(problem, row), row[0].items)))


def group_key(group: PackedGroup) -> tuple[int, tuple[int, ...]]:
    return -group.degree, group.items
