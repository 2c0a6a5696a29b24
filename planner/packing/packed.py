"""What packing returns: micro-batches of groups of items, and what they are worth."""

from dataclasses import dataclass

from planner.costs.step.sequences import Sequences


@dataclass(frozen=True, slots=True)
class PackedGroup:
    shape: int  # of the problem's shapes
    items: tuple[int, ...]
    first: int = 0  # rank


Packed = tuple[tuple[PackedGroup, ...], ...]  # micro-batches of groups


def worth(problem: Sequences, packed: Packed) -> float:
    """Seconds of the step."""
    if problem.sync == "step":
        return last_end(problem, packed) + problem.step_seconds
    rows = sum(makespan(problem, row) + problem.row_seconds for row in packed)
    return rows + problem.step_seconds


def makespan(problem: Sequences, row: tuple[PackedGroup, ...]) -> float:
    """Seconds of a micro-batch in which all ranks meet: as long as its slowest group."""
    return max((problem.seconds(group.shape, group.items) for group in row), default=0.0)


def last_end(problem: Sequences, packed: Packed) -> float:
    """When the last rank is done, where ranks go from micro-batch to micro-batch without waiting for all others."""
    ends: dict[int, float] = {}
    for row in packed:
        for group in row:
            ranks = range(group.first, group.first + problem.shapes[group.shape].degree)
            end = max(ends.get(rank, 0.0) for rank in ranks) + problem.seconds(group.shape, group.items)
            ends.update(dict.fromkeys(ranks, end))
    return max(ends.values(), default=0.0)


def longest_last(problem: Sequences, packed: Packed) -> Packed:
    """These micro-batches, or backwards, where ranks meet once a step, and what they end with hides their exchange.

    Both take as long, the longest chain of groups that share ranks.
    """
    return max((packed, tuple(reversed(packed))), key=lambda rows: shortest_last(problem, rows))


def shortest_last(problem: Sequences, packed: Packed) -> float:
    """Seconds of what a rank does last, on the rank where that is least."""
    last: dict[int, float] = {}
    for group in (group for row in packed for group in row):
        ranks = range(group.first, group.first + problem.shapes[group.shape].degree)
        last.update(dict.fromkeys(ranks, problem.seconds(group.shape, group.items)))
    return min(last.values(), default=0.0)


def ordered(packed: Packed, problem: Sequences) -> Packed:
    """The same packing in one order: in a micro-batch by rank, items rising; where all ranks meet, slowest first."""
    rows = [
        tuple(sorted((PackedGroup(g.shape, tuple(sorted(g.items)), g.first) for g in row if g.items), key=by_rank))
        for row in packed
    ]
    rows = [row for row in rows if row]
    if problem.sync == "step":  # a rank's micro-batches are in the order in which it found time for them
        return tuple(rows)
    return tuple(sorted(rows, key=lambda row: (-makespan(problem, row), row[0].items)))


def by_rank(group: PackedGroup) -> int:
    return group.first
