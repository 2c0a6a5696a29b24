"""A lower bound that couples tokens in flight with time, for batches in which a few long sequences dwarf the rest.

The area bound lets ranks work at full rate from start to end. But while a long sequence holds d ranks for t_d(L), the
others run out of memory for tokens long before they run out of time, and what they cannot hold lengthens the other
micro-batches. So all placements of the longest sequences are enumerated (in which micro-batch, on which shape, alone or
together), and each case is bounded by a relaxation in which all other sequences are divisible
(scoring/bounds/lagrangian_dual.py) and go to

    leftover ranks       those of their micro-batch that the long sequences leave free, each at its cheapest area
    long groups          in seconds of that shape, as far as the tokens fit
    other micro-batches  those without long sequences, each at its cheapest area

Every plan belongs to one of the cases, so the least over them is a bound. Best-first branch and bound: the case with
the least bound is split by the next longest sequence, until no case is below the known value, or the work is spent.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from planner.costs import PackingProblem, PackingTable, packing_table
from planner.scoring.bounds.lagrangian_dual import Destination, DivisibleSequences, Floats, relaxed_seconds

COUNTS_DISTINGUISHED = 8  # numbers of micro-batches with a case each, from the smallest that holds the tokens
CASES_BY_EFFORT = {0: 0, 1: 12, 2: 24, 3: 100, 4: 400}  # number of cases bounded, by effort
MAX_SEQUENCES_PLACED = 6  # longest sequences whose placements are enumerated


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


@dataclass(frozen=True, slots=True)
class CoupledProblem:
    """The packing problem, with its sequences but the longest few as divisible kinds."""

    table: PackingTable
    min_constant: float  # least constant of any shape, seconds
    fluids: dict[int, DivisibleSequences] = field(default_factory=dict)  # by number of longest sequences left out

    @property
    def problem(self) -> PackingProblem:
        return self.table.problem

    def fluid(self, without: int) -> DivisibleSequences:
        """All sequences but the longest `without`, as divisible kinds."""
        if without not in self.fluids:
            columns = np.column_stack([self.table.sizes[without:], self.table.seconds[without:]])
            kinds, counts = np.unique(columns, axis=0, return_counts=True)
            self.fluids[without] = DivisibleSequences(kinds[:, 0], counts.astype(np.float64), kinds[:, 1:])
        return self.fluids[without]


def coupled_seconds(problem: PackingProblem, value: float, effort: int) -> float:
    """Least seconds of a step over all cases; at most `value`, the seconds of a known plan."""
    table = packing_table(problem)
    relaxed = CoupledProblem(table, float(table.constants.min()))
    ticket = count()  # ties: the older case first
    cases = [(placement_case_bound(relaxed, case, value), next(ticket), case) for case in root_cases(problem, value)]
    heapq.heapify(cases)
    spent = 0
    while cases and cases[0][0] < value and spent < CASES_BY_EFFORT[effort]:
        least, _, case = cases[0]
        if case.sequences_placed == min(MAX_SEQUENCES_PLACED, len(table.items)):
            break
        heapq.heappop(cases)
        for child in split_case(table, case):
            spent += 1
            heapq.heappush(cases, (max(least, placement_case_bound(relaxed, child, value)), next(ticket), child))
    return min([value, *(least for least, _, _ in cases[:1])])


def placement_case_bound(relaxed: CoupledProblem, case: PlacementCase, value: float) -> float:
    """Lower bound in seconds over the plans of a case; infinite when there are none."""
    fluid = relaxed.fluid(case.sequences_placed)
    constants = case.micro_batches * relaxed.problem.micro_batch_seconds + relaxed.problem.step_seconds
    places = [*other_micro_batches(relaxed, fluid, case)]
    for number, micro_batch in enumerate(case.groups):
        places += [
            *leftover_ranks(relaxed, fluid, number, micro_batch),
            *(long_group(relaxed, fluid, number, group) for group in micro_batch),
        ]
    return constants + relaxed_seconds(fluid, places, value - constants)


def leftover_ranks(
    relaxed: CoupledProblem, fluid: DivisibleSequences, number: int, micro_batch: LongMicroBatch
) -> Iterator[Destination]:
    """The ranks of each pool that a micro-batch's long groups leave free. They may idle, so they pay the least
    constant.
    """
    for pool, ranks in enumerate(ranks_left(relaxed.problem, micro_batch)):
        costs, cap = cheapest_areas(relaxed, fluid, pool, ranks)
        if ranks and np.isfinite(costs).any():
            yield Destination(number, costs / ranks, relaxed.min_constant, float(cap * ranks))


def long_group(relaxed: CoupledProblem, fluid: DivisibleSequences, number: int, group: LongGroup) -> Destination:
    """The group of some long sequences, as a destination for others."""
    spent = float(
        relaxed.table.seconds[list(group.sequences), group.shape].sum() + relaxed.table.constants[group.shape]
    )
    return Destination(number, fluid.seconds[:, group.shape], spent, float(tokens_left(relaxed.table, group)))


def other_micro_batches(
    relaxed: CoupledProblem, fluid: DivisibleSequences, case: PlacementCase
) -> Iterator[Destination]:
    """The micro-batches without long sequences, aggregated by pool."""
    micro_batches = case.micro_batches - len(case.groups)
    if not micro_batches and not case.or_more:
        return
    for number, pool in enumerate(relaxed.problem.pools):
        costs, cap = cheapest_areas(relaxed, fluid, number, pool.ranks)
        tokens = float("inf") if case.or_more else float(micro_batches * pool.ranks * cap)
        yield Destination(len(case.groups), costs / pool.ranks, max(0, micro_batches) * relaxed.min_constant, tokens)


def cheapest_areas(relaxed: CoupledProblem, fluid: DivisibleSequences, pool: int, ranks: int) -> tuple[Floats, int]:
    """Rank-seconds of each kind, (kinds,), on the cheapest shape of a pool within so many ranks; tokens of one rank."""
    chosen = [n for n, s in enumerate(relaxed.problem.shapes) if s.pool == pool and s.degree <= ranks]
    if not chosen:
        return np.full(len(fluid.sizes), np.inf), 0
    areas = fluid.seconds[:, chosen] * relaxed.table.degrees[chosen]
    return areas.min(axis=1), max(relaxed.problem.shapes[n].cap for n in chosen)
