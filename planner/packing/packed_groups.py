"""The result of packing: micro-batches of groups of items, the seconds that they take, and the work that finds them."""

from dataclasses import dataclass
from typing import NamedTuple

from planner.costs import PackingProblem


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """Items that a group of ranks works on together in one micro-batch."""

    shape: int  # index into the problem's shapes
    items: tuple[int, ...]
    first_rank: int = 0  # first rank of the group


Packing = tuple[tuple[PackedGroup, ...], ...]  # micro-batches of groups


def packing_seconds(problem: PackingProblem, packed: Packing) -> float:
    """Seconds of the step: the sum of makespans, or with one synchronisation per step the last rank's end."""
    if problem.sync == "step":
        return last_rank_end(problem, packed) + problem.step_seconds
    total = sum(makespan(problem, micro_batch) + problem.micro_batch_seconds for micro_batch in packed)
    return total + problem.step_seconds


def makespan(problem: PackingProblem, micro_batch: tuple[PackedGroup, ...]) -> float:
    """Seconds of a micro-batch in which all ranks synchronise: those of its slowest group."""
    return max((problem.seconds(group.shape, group.items) for group in micro_batch), default=0.0)


def last_rank_end(problem: PackingProblem, packed: Packing) -> float:
    """Seconds until the last rank is done, where ranks run their micro-batches without a global synchronisation."""
    ends: dict[int, float] = {}
    for micro_batch in packed:
        for group in micro_batch:
            ranks = range(group.first_rank, group.first_rank + problem.shapes[group.shape].degree)
            end = max(ends.get(rank, 0.0) for rank in ranks) + problem.seconds(group.shape, group.items)
            ends.update(dict.fromkeys(ranks, end))
    return max(ends.values(), default=0.0)


def longest_work_last(problem: PackingProblem, packed: Packing) -> Packing:
    """A packing's micro-batches or their reverse: the one whose last work is longer, which hides more of the reduction.

    Only for one synchronisation per step. Both take the same time, that of the longest chain of groups sharing ranks.
    """
    return max((packed, tuple(reversed(packed))), key=lambda direction: shortest_last_work(problem, direction))


def shortest_last_work(problem: PackingProblem, packed: Packing) -> float:
    """Seconds of the last group that a rank works in, for the rank where that is least."""
    last: dict[int, float] = {}
    for group in (group for micro_batch in packed for group in micro_batch):
        ranks = range(group.first_rank, group.first_rank + problem.shapes[group.shape].degree)
        last.update(dict.fromkeys(ranks, problem.seconds(group.shape, group.items)))
    return min(last.values(), default=0.0)


def canonical_order(packed: Packing, problem: PackingProblem) -> Packing:
    """A packing in canonical order: groups by rank, items rising; micro-batches slowest first where all ranks
    synchronise in each.
    """
    micro_batches = [
        tuple(
            sorted(
                (PackedGroup(g.shape, tuple(sorted(g.items)), g.first_rank) for g in micro_batch if g.items),
                key=by_rank,
            )
        )
        for micro_batch in packed
    ]
    micro_batches = [micro_batch for micro_batch in micro_batches if micro_batch]
    if problem.sync == "step":  # a rank's micro-batches are in the order in which the fill placed them
        return tuple(micro_batches)
    return tuple(sorted(micro_batches, key=lambda micro_batch: (-makespan(problem, micro_batch), micro_batch[0].items)))


def by_rank(group: PackedGroup) -> int:
    return group.first_rank


MIN_SEQUENCES_PER_FILL = 200  # sequences: a fill costs at least as much as placing this many


class FillBudget(NamedTuple):
    """How much work an effort level allows, counted in sequences placed: the same on any machine."""

    sequences_placed: dict[int, int]  # sequences
    min_fills: dict[int, int]  # fills that are always allowed, however many sequences each places

    def fills(self, effort: int, sequences: int) -> int:
        """Number of fills that an effort level allows for so many sequences."""
        return max(self.min_fills[effort], self.sequences_placed[effort] // max(sequences, MIN_SEQUENCES_PER_FILL))
