"""Where the longest sequences of a batch can be placed: in which micro-batch, on which shape, alone or together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import Table

MICRO_BATCHES = 8  # numbers of micro-batches with a case each, from the smallest that holds the tokens


@dataclass(frozen=True, slots=True)
class Held:
    """A group that holds some of the longest sequences."""

    shape: int
    longs: tuple[int, ...]  # by length: 0 is the longest


Row = tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """All plans in which the longest sequences are placed like this."""

    rows: int  # micro-batches in total
    more: bool  # whether plans with more micro-batches belong to the case too
    groups: tuple[Row, ...] = ()  # micro-batches that hold any of the longest sequences

    @property
    def depth(self) -> int:
        """Number of sequences that the case places."""
        return sum(len(group.longs) for micro_batch in self.groups for group in micro_batch)


def roots(problem: Sequences, value: float) -> Iterator[Case]:
    """A case for each number of micro-batches, up to those whose constants alone cost more than `value` seconds."""
    fewest = problem.fewest_rows
    if problem.row_constant <= 0:  # more of them cost nothing, so that one case stands for all
        yield Case(fewest, more=True)
        return
    for micro_batches in range(fewest, fewest + MICRO_BATCHES):
        yield Case(micro_batches, more=False)
        if micro_batches * problem.row_constant > value:
            return
    yield Case(fewest + MICRO_BATCHES, more=True)


def split(table: Table, case: Case) -> Iterator[Case]:
    """The case split by every placement of the next longest sequence: in a group of its own, or in an existing one."""
    long = case.depth
    for shape in np.flatnonzero(np.isfinite(table.seconds[long])).tolist():
        single = Held(shape, (long,))
        for number, micro_batch in enumerate(case.groups):
            if left(table.problem, (*micro_batch, single))[table.problem.shapes[shape].pool] >= 0:
                yield with_micro_batch(case, number, (*micro_batch, single))
        if case.more or len(case.groups) < case.rows:
            yield replace(case, groups=(*case.groups, (single,)))
    for number, micro_batch in enumerate(case.groups):
        for at, group in enumerate(micro_batch):
            joined = replace(group, longs=(*group.longs, long))
            if np.isfinite(table.seconds[long, group.shape]) and room(table, joined) >= 0:
                yield with_micro_batch(case, number, (*micro_batch[:at], joined, *micro_batch[at + 1 :]))


def with_micro_batch(case: Case, number: int, micro_batch: Row) -> Case:
    """The case with one of its micro-batches replaced."""
    return replace(case, groups=(*case.groups[:number], micro_batch, *case.groups[number + 1 :]))


def left(problem: Sequences, micro_batch: Row) -> list[int]:
    """Ranks of each pool that these groups leave free."""
    free = [pool.ranks for pool in problem.pools]
    for group in micro_batch:
        free[problem.shapes[group.shape].pool] -= problem.shapes[group.shape].degree
    return free


def room(table: Table, group: Held) -> int:
    """Tokens that a group can still hold."""
    return int(table.rooms[group.shape] - table.sizes[list(group.longs)].sum())
