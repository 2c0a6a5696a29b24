"""Where the longest sequences of a batch can be placed: in which micro-batch, on which shape, alone or together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs import PackingProblem, PackingTable

COUNTS_DISTINGUISHED = 8  # numbers of micro-batches with a case each, from the smallest that holds the tokens


@dataclass(frozen=True, slots=True)
class LongGroup:
    """A group that holds some of the longest sequences."""

    shape: int
    sequences: tuple[int, ...]  # by length: 0 is the longest


LongMicroBatch = tuple[LongGroup, ...]


@dataclass(frozen=True, slots=True)
class PlacementCase:
    """All plans in which the longest sequences are placed like this."""

    micro_batches: int  # micro-batches in total
    or_more: bool  # whether plans with more micro-batches belong to the case too
    groups: tuple[LongMicroBatch, ...] = ()  # micro-batches that hold any of the longest sequences

    @property
    def sequences_placed(self) -> int:
        """Number of sequences that the case places."""
        return sum(len(group.sequences) for micro_batch in self.groups for group in micro_batch)


def root_cases(problem: PackingProblem, value: float) -> Iterator[PlacementCase]:
    """A case for each number of micro-batches, up to those whose constants alone cost more than `value` seconds."""
    fewest = problem.fewest_micro_batches
    if problem.least_micro_batch_seconds <= 0:  # more of them cost nothing, so that one case stands for all
        yield PlacementCase(fewest, or_more=True)
        return
    for micro_batches in range(fewest, fewest + COUNTS_DISTINGUISHED):
        yield PlacementCase(micro_batches, or_more=False)
        if micro_batches * problem.least_micro_batch_seconds > value:
            return
    yield PlacementCase(fewest + COUNTS_DISTINGUISHED, or_more=True)


def split_case(table: PackingTable, case: PlacementCase) -> Iterator[PlacementCase]:
    """The case split by every placement of the next longest sequence: in a group of its own, or in an existing one."""
    long = case.sequences_placed
    for shape in np.flatnonzero(np.isfinite(table.seconds[long])).tolist():
        single = LongGroup(shape, (long,))
        for number, micro_batch in enumerate(case.groups):
            if ranks_left(table.problem, (*micro_batch, single))[table.problem.shapes[shape].pool] >= 0:
                yield with_micro_batch(case, number, (*micro_batch, single))
        if case.or_more or len(case.groups) < case.micro_batches:
            yield replace(case, groups=(*case.groups, (single,)))
    for number, micro_batch in enumerate(case.groups):
        for at, group in enumerate(micro_batch):
            joined = replace(group, sequences=(*group.sequences, long))
            if np.isfinite(table.seconds[long, group.shape]) and tokens_left(table, joined) >= 0:
                yield with_micro_batch(case, number, (*micro_batch[:at], joined, *micro_batch[at + 1 :]))


def with_micro_batch(case: PlacementCase, number: int, micro_batch: LongMicroBatch) -> PlacementCase:
    """The case with one of its micro-batches replaced."""
    return replace(case, groups=(*case.groups[:number], micro_batch, *case.groups[number + 1 :]))


def ranks_left(problem: PackingProblem, micro_batch: LongMicroBatch) -> list[int]:
    """Ranks of each pool that these groups leave free."""
    free = [pool.ranks for pool in problem.pools]
    for group in micro_batch:
        free[problem.shapes[group.shape].pool] -= problem.shapes[group.shape].degree
    return free


def tokens_left(table: PackingTable, group: LongGroup) -> int:
    """Tokens that a group can still hold."""
    return int(table.rooms[group.shape] - table.sizes[list(group.sequences)].sum())
