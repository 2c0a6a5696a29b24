"""Search for the shortest step where ranks synchronise once per step: the least time in which a fill places everything.

Every combination of a few fill rules is bisected; then the rules and the order of sequences are perturbed around the
best. Work is counted in sequences placed.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import Table, make_table
from planner.packing.budget import Budget
from planner.packing.packed import Packed, ordered, worth
from planner.packing.streams import Rules, Takes, fill_streams, takes_of

BUDGET = Budget(
    placed={0: 0, 1: 25_000, 2: 100_000, 3: 500_000, 4: 4_000_000},
    fewest={0: 0, 1: 10, 2: 30, 3: 100, 4: 400},
)
RULES = [Rules(renewal, dear, first) for dear, renewal, first in product((2.0, 0.5), (2.0, 10.0), (False, True))]
BISECTIONS = 7
SHORTENED_BY = 0.01  # greatest reduction of the time limit, relative
RESTRICTED_SEQUENCES = 4  # sequences restricted to one random shape, at most
ORDER_PERTURBATION = (1.0, 0.003)  # standard deviation of log lengths: greatest and least


@dataclass(slots=True)
class StreamSearch:
    """The incumbent packing, and the fills left to spend."""

    table: Table
    takes: list[Takes]
    fills: int
    value: float
    best: Packed
    spent: int = 0

    def attempt(self, span: float, rules: Rules, order: list[int], takes: list[Takes] | None = None) -> bool:
        """Fill within `span` seconds and keep a better packing; returns whether every item fitted."""
        self.spent += 1
        packed = fill_streams(self.table, takes or self.takes, span, rules, order)
        if packed is None:
            return False
        seconds = worth(self.table.problem, packed)
        if seconds < self.value * (1 - 1e-12):
            self.best, self.value = packed, seconds
        return True

    @property
    def span(self) -> float:
        """Seconds of the incumbent without the step's constants."""
        return self.value - self.table.problem.step_seconds

    @property
    def exhausted(self) -> bool:
        return self.spent >= self.fills


def stream_search(problem: Sequences, warm: Packed, effort: int) -> tuple[Packed, int]:
    """The best packing found from the warm start `warm`, and the number of fills spent."""
    table = make_table(problem)
    state = StreamSearch(table, takes_of(table), BUDGET.fills(effort, len(problem.sizes)), worth(problem, warm), warm)
    for rules in RULES:
        bisect_rules(state, rules)
    perturb(state)
    return ordered(state.best, problem), state.spent


def bisect_rules(state: StreamSearch, rules: Rules) -> None:
    """Bisect the time limit for these rules; they are dropped if they cannot match the incumbent."""
    order = [*range(len(state.table.items))]
    high = state.span
    low = high * 0.5
    if state.exhausted or not state.attempt(high, rules, order):
        return
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if state.exhausted:
            return
        if state.attempt(middle, rules, order):
            high = min(middle, state.span)
        else:
            low = middle


def perturb(state: StreamSearch) -> None:
    """Try perturbed rules and orders within slightly less time than the incumbent."""
    random = np.random.Generator(np.random.PCG64(0))
    most, least = np.log(ORDER_PERTURBATION[0]), np.log(ORDER_PERTURBATION[1])
    lengths = np.log(state.table.sizes)
    while not state.exhausted:
        rules = Rules(
            renewal=float(np.exp(random.uniform(-0.5, 2.5))),
            dear=float(np.exp(random.uniform(-1.5, 1.5))),
            open_first=bool(random.random() < 0.5),
        )
        noise = np.exp(random.uniform(least, most)) * random.standard_normal(len(lengths))
        order = np.argsort(noise * (random.random() < 0.7) - lengths, kind="stable")
        takes = restrict_shapes(state.takes, random) if random.random() < 0.5 else state.takes
        state.attempt(state.span * (1 - SHORTENED_BY * random.random() ** 2), rules, order.tolist(), takes)


def restrict_shapes(takes: list[Takes], random: np.random.Generator) -> list[Takes]:
    """The same, with a few sequences, most of them long, restricted to one random shape."""
    restricted = takes.copy()
    for _ in range(int(random.integers(1, RESTRICTED_SEQUENCES + 1))):
        item = int(len(takes) * random.random() ** 4)
        shape = list(takes[item])[int(random.integers(len(takes[item])))]
        restricted[item] = {shape: takes[item][shape]}
    return restricted
