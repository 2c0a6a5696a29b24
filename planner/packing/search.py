"""Choose how many micro-batches there are and how long each may last, by filling and looking.

First the longest micro-batches are tried at the times that matter — those of the longest sequences on each shape — and
at multiples of the mean, the others sharing one duration; and all in proportion to what sequences sorted and cut into
chunks would take: always the shortest that still takes everything (bisection). Then all durations are shaken, by much
or by little, around the best packing so far, and at last its micro-batches are leveled. Work is counted in sequences
placed, so that the same effort gives the same packing on any machine.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import Floats, Table, make_table
from planner.packing.budget import Budget
from planner.packing.fill import Filled, fill
from planner.packing.packed import Packed, makespan, ordered, worth
from planner.packing.places import Nodes, aligned, make_nodes
from planner.packing.polish import polished

BUDGET = Budget(
    placed={0: 0, 1: 50_000, 2: 200_000, 3: 2_000_000, 4: 20_000_000},
    fewest={0: 0, 1: 24, 2: 100, 3: 400, 4: 1600},
)
EXCHANGES = {0: 0, 1: 100, 2: 400, 3: 2000, 4: 10_000}
BISECTIONS = 8
MICRO_BATCHES = 4  # numbers of them that are tried, from the fewest that hold the tokens
FIRST_OVER_MEAN = (1.1, 1.25, 1.5, 2.0)
LONG_ROWS = (1, 2)  # micro-batches that last longer than the others
LONGEST = 2  # sequences whose own times are tried as their duration
CHUNK_POWERS = (0.0, 0.5, 1.0)  # of the durations of chunks: 0 makes all equal
TINY = 1e-100  # seconds: what costs nothing has durations too
SHAKEN_BY = (0.0005, 0.05)  # of their logarithms: standard deviation, at least and at most
TOGETHER = 2  # fills that do not wait for each other, whatever the machine: the same packing everywhere
LARGE = 4096  # sequences from which on a fill takes longer than to hand it to a thread
SHORTENED_BY = 2e-3  # at most, of the sum of durations


@dataclass(slots=True)
class Search:
    """The best packing so far, and the fills left to spend."""

    problem: Sequences
    table: Table
    nodes: Nodes
    fills: int
    value: float
    best: Filled | None = None  # None: what the search began with
    spent: int = 0

    def try_spans(self, spans: Floats) -> bool:
        """Fill, and keep what is better; says whether everything found room."""
        return self.offer(self.fill(spans))

    def fill(self, spans: Floats) -> Filled | None:
        return fill(self.table, self.nodes, spans)

    def offer(self, filled: Filled | None) -> bool:
        self.spent += 1
        if filled is None:
            return False
        value = filled.worth()
        if value < self.value * (1 - 1e-12):
            self.best, self.value = filled, value
        return True

    @property
    def exhausted(self) -> bool:
        return self.spent >= self.fills


def search(problem: Sequences, warm: Packed, effort: int) -> tuple[Packed, int]:
    """The best packing found from `warm` on, and how many fills it took."""
    fills = BUDGET.fills(effort, len(problem.sizes))
    run = Search(problem, make_table(problem), make_nodes(problem), fills, worth(problem, warm))
    fewest = problem.fewest_rows
    rows, fitted = fewest, False
    while not run.exhausted and rows <= len(problem.sizes) and (rows < fewest + MICRO_BATCHES or not fitted):
        for profile in profiles(run.table, rows):
            fitted |= bisect(run, profile)
        rows += 1 if rows < fewest + MICRO_BATCHES else 1 + rows // 4  # fixed degrees can need many more
    lasts = [makespan(problem, row) for row in warm] if run.best is None else []
    shake(run, np.array(lasts))
    best = polished(run.table, run.best.packed() if run.best else warm, EXCHANGES[effort])
    return ordered(aligned(problem, best), problem), run.spent


@dataclass(frozen=True, slots=True)
class Profile:
    """Durations of micro-batches: some set, the others in proportion to each other."""

    set: Floats  # seconds
    others: Floats

    def __call__(self, scale: float) -> Floats:
        return np.concatenate([self.set, self.others * scale])


def profiles(table: Table, rows: int) -> Iterator[Profile]:
    """What durations are tried; how long the others are is bisected."""
    none = np.empty(0)
    chunks = chunk_seconds(table, rows)
    for power in CHUNK_POWERS if rows > 1 else CHUNK_POWERS[:1]:
        yield Profile(none, chunks**power)
    mean = float(chunks.mean())
    alone = table.seconds[:LONGEST] + table.constants
    critical = {float(seconds) for seconds in alone.ravel() if mean < seconds < np.inf}
    for first in [*sorted(critical), *(mean * factor for factor in FIRST_OVER_MEAN)]:
        for count in LONG_ROWS:
            if count < rows:
                yield Profile(np.full(count, first), np.ones(rows - count))


def chunk_seconds(table: Table, rows: int) -> Floats:
    """Sequences by length in chunks of equally many tokens: how long each takes in perfect balance."""
    areas = table.areas.min(axis=1)
    ends = np.cumsum(table.sizes)
    chunk = np.minimum((ends - table.sizes) * rows // int(ends[-1]), rows - 1)
    work = np.bincount(chunk, areas, rows) / table.problem.ranks
    longest = np.zeros(rows)
    np.maximum.at(longest, chunk, table.seconds.min(axis=1))
    return np.maximum(work, longest) + float(table.constants.min()) + TINY


def bisect(run: Search, profile: Profile) -> bool:
    """The shortest durations of the others that take everything, if any do.

    It starts from the duration at which the best packing so far would be matched: where that takes too little, nothing
    is to be gained with this profile, and one fill has shown it.
    """
    low, high = 0.0, matching_scale(run, profile)
    if high <= 0 or run.exhausted or not run.try_spans(profile(high)):
        return False
    for _ in range(BISECTIONS):
        if run.exhausted:
            break
        middle = (low + high) / 2
        if run.try_spans(profile(middle)):
            high = middle
        else:
            low = middle
    return True


def matching_scale(run: Search, profile: Profile) -> float:
    """How long the others may be for the step to be as good as the best one known."""
    rows = len(profile.set) + len(profile.others)
    free = run.value - run.problem.step_seconds - rows * run.problem.row_seconds - float(profile.set.sum())
    return free / float(profile.others.sum())


def shake(run: Search, lasts: Floats) -> None:
    """Durations around those of the best packing (at first `lasts`), two at a time: the compiled fill lets go of the
    interpreter, so that large ones use both cores.
    """
    chance = np.random.Generator(np.random.PCG64(0))
    with ThreadPoolExecutor(TOGETHER) as threads:
        each = threads.map if len(run.table.items) >= LARGE else map
        while not run.exhausted:
            if run.best:
                lasts = run.best.makespans()
            lasts = lasts[lasts > 0]
            if not len(lasts):
                return
            spans = [shaken(lasts, chance) for _ in range(min(TOGETHER, run.fills - run.spent))]
            for filled in each(run.fill, spans):
                run.offer(filled)


def shaken(lasts: Floats, chance: np.random.Generator) -> Floats:
    """Durations of like proportions, a little shorter in sum."""
    deviation = np.exp(chance.uniform(*np.log(SHAKEN_BY)))
    others = lasts * np.exp(deviation * chance.standard_normal(len(lasts)))
    shorter = 1 - SHORTENED_BY * chance.random()
    near: Floats = others * (shorter * lasts.sum() / others.sum())
    return near
