"""Search for the shortest step where ranks synchronise once per step: the least time in which a fill places everything.

Every combination of a few fill rules is bisected; then the rules and the order of sequences are perturbed around the
best. Work is counted in sequences placed, and ends where a packing is at its lower bound.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from planner.costs import Ints, PackingProblem, PackingTable, packing_table
from planner.packing.packed_groups import FillBudget, Packing, canonical_order, packing_seconds
from planner.packing.rank_placement import NodeTable, make_nodes
from planner.packing.stream_fill import FillRules, allowed_shapes, fill_streams

BUDGET = FillBudget(
    sequences_placed={0: 0, 1: 25_000, 2: 100_000, 3: 500_000, 4: 4_000_000},
    min_fills={0: 0, 1: 10, 2: 30, 3: 100, 4: 400},
)
RULES = [FillRules(renewal, dear, first) for dear, renewal, first in product((2.0, 0.5), (2.0, 10.0), (False, True))]
BISECTIONS = 7
SHORTENED_BY = 0.01  # greatest reduction of the time limit, relative
RESTRICTED_SEQUENCES = 4  # sequences restricted to one random shape, at most
ORDER_PERTURBATION = (1.0, 0.003)  # standard deviation of log lengths: greatest and least


@dataclass(slots=True)
class StreamSearch:
    """The incumbent packing, and the fills left to spend."""

    table: PackingTable
    nodes: NodeTable
    shapes: Ints  # (items, shapes) that may hold each item, the cheapest first; then -1
    fill_limit: int
    least_seconds: float  # of any packing
    step_seconds: float
    best: Packing
    fills_spent: int = 0

    def attempt(self, span: float, rules: FillRules, order: Ints, shapes: Ints) -> bool:
        """Fill within `span` seconds and keep a better packing; returns whether every item fitted."""
        self.fills_spent += 1
        packed = fill_streams(self.table, self.nodes, shapes, span, rules, order)
        if packed is None:
            return False
        seconds = packing_seconds(self.table.problem, packed)
        if seconds < self.step_seconds * (1 - 1e-12):
            self.best, self.step_seconds = packed, seconds
        return True

    @property
    def span(self) -> float:
        """Seconds of the incumbent without the step's constants."""
        return self.step_seconds - self.table.problem.step_seconds

    @property
    def ended(self) -> bool:
        """Whether no fill is left, or no packing is quicker."""
        return self.fills_spent >= self.fill_limit or self.step_seconds <= self.least_seconds * (1 + 1e-12)


def stream_search(problem: PackingProblem, warm: Packing, effort: int) -> tuple[Packing, int]:
    """The best packing found from the warm start `warm`, and the number of fills spent."""
    table = packing_table(problem)
    limit, known = BUDGET.fills(effort, len(problem.sizes)), packing_seconds(problem, warm)
    places = make_nodes(problem), allowed_shapes(table)
    state = StreamSearch(table, *places, limit, table.least_step_seconds, known, warm)
    for rules in RULES:
        bisect_rules(state, rules)
    perturb(state)
    return canonical_order(state.best, problem), state.fills_spent


def bisect_rules(state: StreamSearch, rules: FillRules) -> None:
    """Bisect the time limit for these rules; they are dropped if they cannot match the incumbent."""
    order = np.arange(len(state.table.items))
    high = state.span
    low = high * 0.5
    if state.ended or not state.attempt(high, rules, order, state.shapes):
        return
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if state.ended:
            return
        if state.attempt(middle, rules, order, state.shapes):
            high = min(middle, state.span)
        else:
            low = middle


def perturb(state: StreamSearch) -> None:
    """Try perturbed rules and orders within slightly less time than the incumbent."""
    random = np.random.Generator(np.random.PCG64(0))
    most, least = np.log(ORDER_PERTURBATION[0]), np.log(ORDER_PERTURBATION[1])
    lengths = np.log(state.table.sizes)
    while not state.ended:
        rules = FillRules(
            new_micro_batch_weight=float(np.exp(random.uniform(-0.5, 2.5))),
            excess_constants=float(np.exp(random.uniform(-1.5, 1.5))),
            open_first=bool(random.random() < 0.5),
        )
        noise = np.exp(random.uniform(least, most)) * random.standard_normal(len(lengths))
        order = np.argsort(noise * (random.random() < 0.7) - lengths, kind="stable")
        shapes = restrict_shapes(state.shapes, random) if random.random() < 0.5 else state.shapes
        state.attempt(state.span * (1 - SHORTENED_BY * random.random() ** 2), rules, order, shapes)


def restrict_shapes(shapes: Ints, random: np.random.Generator) -> Ints:
    """The shapes that may hold each item, a few of which, most of them long, are restricted to one random shape."""
    restricted: Ints = shapes.copy()
    for _ in range(int(random.integers(1, RESTRICTED_SEQUENCES + 1))):
        item = int(len(shapes) * random.random() ** 4)
        restricted[item, 0] = shapes[item, int(random.integers((shapes[item] >= 0).sum()))]
        restricted[item, 1:] = -1
    return restricted
