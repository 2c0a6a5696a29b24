"""Search over the number and the maximum durations of micro-batches, by trial fills.

First the longest micro-batches are tried at the times that matter (those of the longest sequences on each shape) and at
multiples of the mean, while the others share one duration; then all durations in proportion to what sequences, sorted
and cut into chunks, would take. Bisection finds the shortest durations that still take every sequence. Then all
durations are perturbed, by much or by little, around the best packing so far, and at last its micro-batches are
leveled. Work is counted in sequences placed, so that the same effort gives the same packing on any machine.

Packings on one pool of ranks at a time are tried too, so that no plan for several kinds of ranks is worse than one that
leaves the other kinds idle. Idle ranks still synchronise in every micro-batch and keep their share of the states, so
the same groups take the same time. A pool is skipped when its work in perfect balance already takes longer than the
known packing.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from planner.costs import Floats, PackingProblem, PackingTable, packing_table
from planner.packing.balanced import best_balanced, one_item_per_micro_batch
from planner.packing.fill import PackingArrays, fill
from planner.packing.leveling import level_micro_batches
from planner.packing.packed_groups import FillBudget, PackedGroup, Packing, canonical_order, makespan, packing_seconds
from planner.packing.rank_placement import NodeTable, align_groups, make_nodes

BUDGET = FillBudget(
    sequences_placed={0: 0, 1: 50_000, 2: 200_000, 3: 2_000_000, 4: 20_000_000},
    min_fills={0: 0, 1: 24, 2: 100, 3: 400, 4: 1600},
)
EXCHANGES = {0: 0, 1: 100, 2: 400, 3: 2000, 4: 10_000}
BISECTIONS = 8
COUNTS_TRIED = 4  # numbers of micro-batches that are tried, from the smallest that holds the tokens
FIRST_OVER_MEAN = (1.1, 1.25, 1.5, 2.0)
LONG_MICRO_BATCHES = (1, 2)  # micro-batches that last longer than the others
LONGEST_SEQUENCES = 2  # sequences whose own times are tried as the duration of these
CHUNK_POWERS = (0.0, 0.5, 1.0)  # exponents of the durations of chunks: 0 makes all equal
TINY = 1e-100  # seconds: keeps durations positive where work costs nothing
PERTURBATION = (0.0005, 0.05)  # standard deviation of log durations: least and greatest
CONCURRENT_FILLS = 2  # concurrent fills, fixed so that every machine finds the same packing
THREADED_FROM = 4096  # sequences from which a fill outlasts the overhead of a thread
SHORTENED_BY = 2e-3  # greatest reduction of the sum of durations, relative


@dataclass(slots=True)
class MakespanSearch:
    """The incumbent packing, and the fills left to spend."""

    problem: PackingProblem
    table: PackingTable
    nodes: NodeTable
    fill_limit: int
    step_seconds: float
    best: PackingArrays | None = None  # None: the warm start is still the best
    fills_spent: int = 0

    def try_durations(self, durations: Floats) -> bool:
        """Fill with these maximum durations and keep a better packing; returns whether every item fitted."""
        return self.consider(self.fill(durations))

    def fill(self, durations: Floats) -> PackingArrays | None:
        """A fill that leaves the search unchanged, so that several can run at once."""
        return fill(self.table, self.nodes, durations)

    def consider(self, filled: PackingArrays | None) -> bool:
        """Count a fill and keep it if it is better; returns whether every item fitted."""
        self.fills_spent += 1
        if filled is None:
            return False
        step_seconds = filled.step_seconds()
        if step_seconds < self.step_seconds * (1 - 1e-12):
            self.best, self.step_seconds = filled, step_seconds
        return True

    @property
    def exhausted(self) -> bool:
        return self.fills_spent >= self.fill_limit


def search_makespans(problem: PackingProblem, warm: Packing, effort: int) -> tuple[Packing, int]:
    """The best packing found from the warm start `warm`, and the number of fills spent."""
    fills = BUDGET.fills(effort, len(problem.sizes))
    state = MakespanSearch(problem, packing_table(problem), make_nodes(problem), fills, packing_seconds(problem, warm))
    fewest = problem.fewest_micro_batches
    micro_batches, any_fitted = fewest, False
    while (
        not state.exhausted
        and micro_batches <= len(problem.sizes)
        and (micro_batches < fewest + COUNTS_TRIED or not any_fitted)
    ):
        for profile in duration_profiles(state.table, micro_batches):
            any_fitted |= bisect_profile(state, profile)
        # Fixed degrees can need many more than the fewest.
        micro_batches += 1 if micro_batches < fewest + COUNTS_TRIED else 1 + micro_batches // 4
    makespans = [makespan(problem, micro_batch) for micro_batch in warm] if state.best is None else []
    perturb_durations(state, np.array(makespans))
    best = level_micro_batches(state.table, state.best.to_packing() if state.best else warm, EXCHANGES[effort])
    return canonical_order(align_groups(problem, best), problem), state.fills_spent


@dataclass(frozen=True, slots=True)
class DurationProfile:
    """Maximum durations of micro-batches: some fixed, the others proportional to a common scale."""

    fixed: Floats  # seconds
    others: Floats  # relative

    def __call__(self, scale: float) -> Floats:
        return np.concatenate([self.fixed, self.others * scale])


def duration_profiles(table: PackingTable, micro_batches: int) -> Iterator[DurationProfile]:
    """The profiles of durations that are tried; the scale of each is bisected."""
    none = np.empty(0)
    chunks = chunk_seconds(table, micro_batches)
    for power in CHUNK_POWERS if micro_batches > 1 else CHUNK_POWERS[:1]:
        yield DurationProfile(none, chunks**power)
    mean = float(chunks.mean())
    single = table.seconds[:LONGEST_SEQUENCES] + table.constants
    critical = {float(seconds) for seconds in single.ravel() if mean < seconds < np.inf}
    for first in [*sorted(critical), *(mean * factor for factor in FIRST_OVER_MEAN)]:
        for count in LONG_MICRO_BATCHES:
            if count < micro_batches:
                yield DurationProfile(np.full(count, first), np.ones(micro_batches - count))


def chunk_seconds(table: PackingTable, micro_batches: int) -> Floats:
    """Seconds in perfect balance, (micro_batches,), of chunks of equally many tokens of the sequences by length."""
    areas = table.rank_seconds.min(axis=1)
    ends = np.cumsum(table.sizes)
    chunk = np.minimum((ends - table.sizes) * micro_batches // int(ends[-1]), micro_batches - 1)
    work = np.bincount(chunk, areas, micro_batches) / table.problem.ranks
    longest = np.zeros(micro_batches)
    np.maximum.at(longest, chunk, table.seconds.min(axis=1))
    return np.maximum(work, longest) + float(table.constants.min()) + TINY


def bisect_profile(state: MakespanSearch, profile: DurationProfile) -> bool:
    """Bisect a profile's scale for the shortest durations that take every item; returns whether any do.

    It starts from the scale at which the incumbent would be matched: where some item does not fit there, this profile
    has nothing to gain, and one fill has shown it.
    """
    low, high = 0.0, matching_scale(state, profile)
    if high <= 0 or state.exhausted or not state.try_durations(profile(high)):
        return False
    for _ in range(BISECTIONS):
        if state.exhausted:
            break
        middle = (low + high) / 2
        if state.try_durations(profile(middle)):
            high = middle
        else:
            low = middle
    return True


def matching_scale(state: MakespanSearch, profile: DurationProfile) -> float:
    """The scale of a profile at which the step takes as long as the incumbent."""
    micro_batches = len(profile.fixed) + len(profile.others)
    free = (
        state.step_seconds
        - state.problem.step_seconds
        - micro_batches * state.problem.micro_batch_seconds
        - float(profile.fixed.sum())
    )
    return free / float(profile.others.sum())


def perturb_durations(state: MakespanSearch, makespans: Floats) -> None:
    """Try durations around those of the incumbent (at first `makespans`), two at a time: the compiled fill releases
    the GIL, so that large ones use both cores.
    """
    random = np.random.Generator(np.random.PCG64(0))
    with ThreadPoolExecutor(CONCURRENT_FILLS) as threads:
        each = threads.map if len(state.table.items) >= THREADED_FROM else map
        while not state.exhausted:
            if state.best:
                makespans = state.best.makespans()
            makespans = makespans[makespans > 0]
            if not len(makespans):
                return
            durations = [
                perturbed(makespans, random) for _ in range(min(CONCURRENT_FILLS, state.fill_limit - state.fills_spent))
            ]
            for filled in each(state.fill, durations):
                state.consider(filled)


def perturbed(makespans: Floats, random: np.random.Generator) -> Floats:
    """Durations of similar proportions and a slightly smaller sum."""
    deviation = np.exp(random.uniform(*np.log(PERTURBATION)))
    others = makespans * np.exp(deviation * random.standard_normal(len(makespans)))
    shorter = 1 - SHORTENED_BY * random.random()
    near: Floats = others * (shorter * makespans.sum() / others.sum())
    return near


def best_of_each_pool(problem: PackingProblem, packed: Packing, effort: int) -> tuple[Packing, int]:
    """`packed`, or a better packing with groups on one pool only; and the number of fills spent."""
    best, best_seconds, fills = packed, packing_seconds(problem, packed), 0
    for number in range(len(problem.pools) if len(problem.pools) > 1 else 0):
        restricted = restrict_to_pool(problem, number)
        if not all(map(restricted.choices, restricted.sizes)) or step_lower_bound(restricted) >= best_seconds:
            continue
        found, spent = search_makespans(
            restricted, best_balanced(restricted) or one_item_per_micro_batch(restricted), effort
        )
        fills += spent
        if packing_seconds(restricted, found) < best_seconds:
            best, best_seconds = renumber_shapes(problem, found, number), packing_seconds(restricted, found)
    return best, fills


def step_lower_bound(problem: PackingProblem) -> float:
    """Lower bound on the seconds of a step: the fewest micro-batches, all of them full and in perfect balance."""
    work = packing_table(problem).least_rank_seconds / problem.ranks
    return work + problem.fewest_micro_batches * problem.least_micro_batch_seconds + problem.step_seconds


def restrict_to_pool(problem: PackingProblem, number: int) -> PackingProblem:
    """The packing problem with the ranks of one pool alone."""
    shapes = tuple(replace(shape, pool=0) for shape in problem.shapes if shape.pool == number)
    return replace(problem, pools=(problem.pools[number],), shapes=shapes)


def renumber_shapes(problem: PackingProblem, packed: Packing, number: int) -> Packing:
    """A packing of one pool, with its shapes numbered as in the problem of all pools."""
    shapes = [at for at, shape in enumerate(problem.shapes) if shape.pool == number]
    micro_batches = (
        tuple(PackedGroup(shapes[g.shape], g.items, g.first_rank) for g in micro_batch) for micro_batch in packed
    )
    return canonical_order(tuple(micro_batches), problem)
