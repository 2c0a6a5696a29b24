"""A bound that couples tokens in flight with time, for batches in which a few long sequences dwarf the rest.

The area bound lets ranks work at full tilt from start to end. But while a long sequence holds d ranks for t_d(L), the
others run out of memory for tokens long before they run out of time, and what they cannot hold lengthens the other
micro-batches. So: enumerate where the longest sequences sit (verify/cases.py), and bound each case by letting all other
sequences flow (verify/dual.py) to

    beside them        on the ranks of their micro-batch that they leave, each at its cheapest area
    into their groups  in seconds of that shape, as far as the tokens go
    elsewhere          to the micro-batches without them, each at its cheapest area

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

CASES = {0: 0, 1: 12, 2: 24, 3: 100, 4: 400}  # that an effort bounds
DEEPEST = 6  # sequences whose places are enumerated


@dataclass(frozen=True, slots=True)
class Whole:
    """The problem, and its sequences but the longest few, equal ones together."""

    table: Table
    constant: float  # seconds of a micro-batch however little it holds, without row_seconds
    fluids: dict[int, Fluid] = field(default_factory=dict)  # by how many of the longest are left out

    @property
    def problem(self) -> Sequences:
        return self.table.problem

    def fluid(self, without: int) -> Fluid:
        if without not in self.fluids:
            rows = np.column_stack([self.table.sizes[without:], self.table.seconds[without:]])
            kinds, counts = np.unique(rows, axis=0, return_counts=True)
            self.fluids[without] = Fluid(kinds[:, 0], counts.astype(np.float64), kinds[:, 1:])
        return self.fluids[without]


def coupled_seconds(problem: Sequences, value: float, effort: int) -> float:
    """The least seconds of a step over all cases; at most `value`, which is known to be possible."""
    table = make_table(problem)
    whole = Whole(table, float(table.constants.min()))
    ticket = count()  # of two equal bounds, the older case first
    cases = [(seconds(whole, case, value), next(ticket), case) for case in roots(problem, value)]
    heapq.heapify(cases)
    spent = 0
    while cases and cases[0][0] < value and spent < CASES[effort]:
        least, _, case = cases[0]
        if case.depth == min(DEEPEST, len(table.items)):
            break
        heapq.heappop(cases)
        for child in split(table, case):
            spent += 1
            heapq.heappush(cases, (max(least, seconds(whole, child, value)), next(ticket), child))
    return min([value, *(least for least, _, _ in cases[:1])])


def seconds(whole: Whole, case: Case, value: float) -> float:
    """What no plan of this case can beat; infinite when there is none."""
    fluid, constants = whole.fluid(case.depth), case.rows * whole.problem.row_seconds + whole.problem.step_seconds
    places = [*elsewhere(whole, fluid, case)]
    for number, row in enumerate(case.groups):
        places += [*beside(whole, fluid, number, row), *(within(whole, fluid, number, held) for held in row)]
    return constants + fluid_seconds(fluid, places, value - constants)


def beside(whole: Whole, fluid: Fluid, number: int, row: Row) -> Iterator[Place]:
    """What the groups of a micro-batch leave of each pool. Its ranks may idle, so it costs the least constant."""
    for pool, ranks in enumerate(left(whole.problem, row)):
        costs, cap = cheapest_areas(whole, fluid, pool, ranks)
        if ranks and np.isfinite(costs).any():
            yield Place(number, costs / ranks, whole.constant, float(cap * ranks))


def within(whole: Whole, fluid: Fluid, number: int, held: Held) -> Place:
    """The group of some long sequences."""
    own = float(whole.table.seconds[list(held.longs), held.shape].sum() + whole.table.constants[held.shape])
    return Place(number, fluid.seconds[:, held.shape], own, float(room(whole.table, held)))


def elsewhere(whole: Whole, fluid: Fluid, case: Case) -> Iterator[Place]:
    """The micro-batches without long sequences, taken together: pool by pool."""
    rows = case.rows - len(case.groups)
    if not rows and not case.more:
        return
    for number, pool in enumerate(whole.problem.pools):
        costs, cap = cheapest_areas(whole, fluid, number, pool.ranks)
        tokens = float("inf") if case.more else float(rows * pool.ranks * cap)
        yield Place(len(case.groups), costs / pool.ranks, max(0, rows) * whole.constant, tokens)


def cheapest_areas(whole: Whole, fluid: Fluid, pool: int, ranks: int) -> tuple[Floats, int]:
    """Rank-seconds of each kind on the best shape of a pool within so many ranks, and the tokens of one rank."""
    chosen = [n for n, s in enumerate(whole.problem.shapes) if s.pool == pool and s.degree <= ranks]
    if not chosen:
        return np.full(len(fluid.sizes), np.inf), 0
    areas = fluid.seconds[:, chosen] * whole.table.degrees[chosen]
    return areas.min(axis=1), max(whole.problem.shapes[n].cap for n in chosen)
