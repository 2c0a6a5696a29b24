"""Where the longest sequences of a batch can sit: in which micro-batch, on which shape, alone or with each other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import Table

MICRO_BATCHES = 8  # numbers of them that are told apart, from the fewest that hold the tokens


@dataclass(frozen=True, slots=True)
class Held:
    """A group that holds some of the longest sequences."""

    shape: int
    longs: tuple[int, ...]  # 0 is the longest


Row = tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """All plans in which the longest sequences sit so."""

    rows: int  # micro-batches in all
    more: bool  # or more of them
    groups: tuple[Row, ...] = ()  # of the micro-batches that have any of the longest

    @property
    def depth(self) -> int:
        """How many sequences it places."""
        return sum(len(held.longs) for row in self.groups for held in row)


def roots(problem: Sequences, value: float) -> Iterator[Case]:
    """A case for each number of micro-batches, up to those that cost more than `value` however little they hold."""
    fewest = problem.fewest_rows
    if problem.row_constant <= 0:  # more of them cost nothing, so that one case stands for all
        yield Case(fewest, more=True)
        return
    for rows in range(fewest, fewest + MICRO_BATCHES):
        yield Case(rows, more=False)
        if rows * problem.row_constant > value:
            return
    yield Case(fewest + MICRO_BATCHES, more=True)


def split(table: Table, case: Case) -> Iterator[Case]:
    """Every place of the next longest sequence: a group of its own, in any micro-batch, or one that there is."""
    long = case.depth
    for shape in np.flatnonzero(np.isfinite(table.seconds[long])).tolist():
        alone = Held(shape, (long,))
        for number, row in enumerate(case.groups):
            if left(table.problem, (*row, alone))[table.problem.shapes[shape].pool] >= 0:
                yield with_row(case, number, (*row, alone))
        if case.more or len(case.groups) < case.rows:
            yield replace(case, groups=(*case.groups, (alone,)))
    for number, row in enumerate(case.groups):
        for at, held in enumerate(row):
            joined = replace(held, longs=(*held.longs, long))
            if np.isfinite(table.seconds[long, held.shape]) and room(table, joined) >= 0:
                yield with_row(case, number, (*row[:at], joined, *row[at + 1 :]))


def with_row(case: Case, number: int, row: Row) -> Case:
    return replace(case, groups=(*case.groups[:number], row, *case.groups[number + 1 :]))


def left(problem: Sequences, row: Row) -> list[int]:
    """The ranks of each pool that these groups leave."""
    free = [pool.ranks for pool in problem.pools]
    for held in row:
        free[problem.shapes[held.shape].pool] -= problem.shapes[held.shape].degree
    return free


def room(table: Table, held: Held) -> int:
    """The tokens that a group can still hold."""
    return int(table.rooms[held.shape] - table.sizes[list(held.longs)].sum())
