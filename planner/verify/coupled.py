"""A lower bound that couples tokens in flight with time, for batches in which a few long sequences dwarf the rest.

The area bound lets ranks work at full rate from start to end. But while a long sequence holds d ranks for t_d(L), the
others run out of memory for tokens long before they run out of time, and what they cannot hold lengthens the other
micro-batches. So all placements of the longest sequences are enumerated (scoring/placement_cases.py), and each case is
bounded by a relaxation in which all other sequences are divisible (scoring/lagrangian_dual.py) and go to

    leftover ranks       those of their micro-batch that the long sequences leave free, each at its cheapest area
    long groups          in seconds of that shape, as far as the tokens fit
    other micro-batches  those without long sequences, each at its cheapest area

Every plan belongs to one of the cases, so the least over them is a bound. Best-first branch and bound: the case with
the least bound is split by the next longest sequence, until no case is below the known value, or the work is spent.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import Table, make_table
from planner.verify.cases import Case, Held, Row, left, room, roots, split
from planner.verify.dual import Floats, Fluid, Place, fluid_seconds

CASES_BY_EFFORT = {0: 0, 1: 12, 2: 24, 3: 100, 4: 400}  # number of cases bounded, by effort
MAX_SEQUENCES_PLACED = 6  # longest sequences whose placements are enumerated


@dataclass(frozen=True, slots=True)
class Whole:
    """The packing problem, with its sequences but the longest few as divisible kinds."""

    table: Table
    constant: float  # least constant of any shape, seconds
    fluids: dict[int, Fluid] = field(default_factory=dict)  # by number of longest sequences left out

    @property
    def problem(self) -> Sequences:
        return self.table.problem

    def fluid(self, without: int) -> Fluid:
        """All sequences but the longest `without`, as divisible kinds."""
        if without not in self.fluids:
            columns = np.column_stack([self.table.sizes[without:], self.table.seconds[without:]])
            kinds, counts = np.unique(columns, axis=0, return_counts=True)
            self.fluids[without] = Fluid(kinds[:, 0], counts.astype(np.float64), kinds[:, 1:])
        return self.fluids[without]


def coupled_seconds(problem: Sequences, value: float, effort: int) -> float:
    """Least seconds of a step over all cases; at most `value`, the seconds of a known plan."""
    table = make_table(problem)
    relaxed = Whole(table, float(table.constants.min()))
    ticket = count()  # ties: the older case first
    cases = [(seconds(relaxed, case, value), next(ticket), case) for case in roots(problem, value)]
    heapq.heapify(cases)
    spent = 0
    while cases and cases[0][0] < value and spent < CASES_BY_EFFORT[effort]:
        least, _, case = cases[0]
        if case.depth == min(MAX_SEQUENCES_PLACED, len(table.items)):
            break
        heapq.heappop(cases)
        for child in split(table, case):
            spent += 1
            heapq.heappush(cases, (max(least, seconds(relaxed, child, value)), next(ticket), child))
    return min([value, *(least for least, _, _ in cases[:1])])


def seconds(relaxed: Whole, case: Case, value: float) -> float:
    """Lower bound in seconds over the plans of a case; infinite when there are none."""
    fluid, constants = relaxed.fluid(case.depth), case.rows * relaxed.problem.row_seconds + relaxed.problem.step_seconds
    places = [*other_micro_batches(relaxed, fluid, case)]
    for number, micro_batch in enumerate(case.groups):
        places += [
            *beside(relaxed, fluid, number, micro_batch),
            *(within(relaxed, fluid, number, group) for group in micro_batch),
        ]
    return constants + fluid_seconds(fluid, places, value - constants)


def beside(relaxed: Whole, fluid: Fluid, number: int, micro_batch: Row) -> Iterator[Place]:
    """The ranks of each pool that a micro-batch's long groups leave free. They may idle, so they pay the least
    constant.
    """
    for pool, ranks in enumerate(left(relaxed.problem, micro_batch)):
        costs, cap = cheapest_areas(relaxed, fluid, pool, ranks)
        if ranks and np.isfinite(costs).any():
            yield Place(number, costs / ranks, relaxed.constant, float(cap * ranks))


def within(relaxed: Whole, fluid: Fluid, number: int, group: Held) -> Place:
    """The group of some long sequences, as a destination for others."""
    spent = float(relaxed.table.seconds[list(group.longs), group.shape].sum() + relaxed.table.constants[group.shape])
    return Place(number, fluid.seconds[:, group.shape], spent, float(room(relaxed.table, group)))


def other_micro_batches(relaxed: Whole, fluid: Fluid, case: Case) -> Iterator[Place]:
    """The micro-batches without long sequences, aggregated by pool."""
    micro_batches = case.rows - len(case.groups)
    if not micro_batches and not case.more:
        return
    for number, pool in enumerate(relaxed.problem.pools):
        costs, cap = cheapest_areas(relaxed, fluid, number, pool.ranks)
        tokens = float("inf") if case.more else float(micro_batches * pool.ranks * cap)
        yield Place(len(case.groups), costs / pool.ranks, max(0, micro_batches) * relaxed.constant, tokens)


def cheapest_areas(relaxed: Whole, fluid: Fluid, pool: int, ranks: int) -> tuple[Floats, int]:
    """Rank-seconds of each kind, (kinds,), on the cheapest shape of a pool within so many ranks; tokens of one rank."""
    chosen = [n for n, s in enumerate(relaxed.problem.shapes) if s.pool == pool and s.degree <= ranks]
    if not chosen:
        return np.full(len(fluid.sizes), np.inf), 0
    areas = fluid.seconds[:, chosen] * relaxed.table.degrees[chosen]
    return areas.min(axis=1), max(relaxed.problem.shapes[n].cap for n in chosen)
