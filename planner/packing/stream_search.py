"""How soon ranks that meet once a step can be done: the shortest time in which a fill takes everything.

Every combination of a few rules is bisected; then rules and the order of sequences are shaken around the best. Work is
counted in sequences placed.
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
SHORTENED_BY = 0.01  # at most
SETTLED = 4  # sequences whose shape is chosen by lot, at most
ORDER_SHAKEN_BY = (1.0, 0.003)  # of the logarithm of lengths: standard deviation, at most and at least


@dataclass(slots=True)
class Search:
    """The best packing so far, and the fills left to spend."""

    table: Table
    takes: list[Takes]
    fills: int
    value: float
    best: Packed
    spent: int = 0

    def attempt(self, span: float, rules: Rules, order: list[int], takes: list[Takes] | None = None) -> bool:
        self.spent += 1
        packed = fill_streams(self.table, takes or self.takes, span, rules, order)
        if packed is None:
            return False
        value = worth(self.table.problem, packed)
        if value < self.value * (1 - 1e-12):
            self.best, self.value = packed, value
        return True

    @property
    def span(self) -> float:
        return self.value - self.table.problem.step_seconds

    @property
    def exhausted(self) -> bool:
        return self.spent >= self.fills


def stream_search(problem: Sequences, warm: Packed, effort: int) -> tuple[Packed, int]:
    """The best packing found from `warm` on, and how many fills it took."""
    table = make_table(problem)
    run = Search(table, takes_of(table), BUDGET.fills(effort, len(problem.sizes)), worth(problem, warm), warm)
    for rules in RULES:
        bisect(run, rules)
    shake(run)
    return ordered(run.best, problem), run.spent


def bisect(run: Search, rules: Rules) -> None:
    """The shortest time for these rules; none at all if they cannot do as well as the best so far."""
    order = [*range(len(run.table.items))]
    high = run.span
    low = high * 0.5
    if run.exhausted or not run.attempt(high, rules, order):
        return
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if run.exhausted:
            return
        if run.attempt(middle, rules, order):
            high = min(middle, run.span)
        else:
            low = middle


def shake(run: Search) -> None:
    """Other rules and other orders, always a little sooner than the best so far."""
    chance = np.random.Generator(np.random.PCG64(0))
    most, least = np.log(ORDER_SHAKEN_BY[0]), np.log(ORDER_SHAKEN_BY[1])
    lengths = np.log(run.table.sizes)
    while not run.exhausted:
        rules = Rules(
            renewal=float(np.exp(chance.uniform(-0.5, 2.5))),
            dear=float(np.exp(chance.uniform(-1.5, 1.5))),
            open_first=bool(chance.random() < 0.5),
        )
        noise = np.exp(chance.uniform(least, most)) * chance.standard_normal(len(lengths))
        order = np.argsort(noise * (chance.random() < 0.7) - lengths, kind="stable")
        takes = settled(run.takes, chance) if chance.random() < 0.5 else run.takes
        run.attempt(run.span * (1 - SHORTENED_BY * chance.random() ** 2), rules, order.tolist(), takes)


def settled(takes: list[Takes], chance: np.random.Generator) -> list[Takes]:
    """The same but for a few sequences, most of them long, that may have one shape only."""
    fewer = takes.copy()
    for _ in range(int(chance.integers(1, SETTLED + 1))):
        item = int(len(takes) * chance.random() ** 4)
        shape = list(takes[item])[int(chance.integers(len(takes[item])))]
        fewer[item] = {shape: takes[item][shape]}
    return fewer
