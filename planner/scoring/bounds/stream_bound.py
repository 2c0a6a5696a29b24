"""A lower bound for ranks that synchronise once per step: the number of micro-batches that each rank runs is what
binds.

A rank that runs m micro-batches pays the constant β for each, so it works at most C − m·β of the C seconds that the
step lasts, and it holds at most m·cap tokens over the step. With f_m ranks of each type, and divisible sequences with
cheapest areas of a_i rank-seconds and s_i tokens:

    Σ_i a_i x_im ≤ f_m (C − m·β),   Σ_i s_i x_im ≤ f_m·m·cap,   Σ_m f_m ≤ N,   Σ_m x_im = n_i

By Farkas' lemma C is infeasible if some θ in [0, 1] and μ ≥ 0 give

    Σ_i n_i·min_m μ (θ_m a_i / (C − m·β) + (1 − θ_m) s_i / (m·cap))  >  μ·N

and C is then bisected. One type stands for all ranks with many micro-batches: its second condition is
Σ_i (a_i + β s_i/cap) x_i ≤ f·C instead, since their number is at least tokens/cap. Ranks of several pools are of
different types; so are those that hold the longest sequence, for each shape that it may have: they have less time by
its seconds, and tokens only for what fits beside it. It has one of these shapes, so the least over them is a bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.costs import Floats, Ints, PackingProblem, PackingTable, packing_table

COUNTS_DISTINGUISHED = 8  # per rank: numbers up to this have a type each
BISECTIONS = {0: 8, 1: 12, 2: 16, 3: 20, 4: 24}  # by effort
STARTS = (1.0, 0.9, 0.75, 0.5, 0.25)  # initial θ of all types: the search changes one coordinate at a time
PROHIBITIVE = 1e9  # shares of a rank for a sequence that it cannot take: more than any plan can afford
FINEST_STEP = 0.005  # step of the multipliers at which the pattern search ends


@dataclass(frozen=True, slots=True)
class RankRole:
    """Ranks of one pool with one role: they hold the longest sequence, or not."""

    count: int
    pool: int
    long_seconds: float  # seconds, on the longest sequence
    tokens_beside: float  # tokens that fit beside it
    min_micro_batches: int  # least number of further micro-batches


@dataclass(frozen=True, slots=True)
class DivisibleAreas:
    """Divisible sequences, equal ones aggregated into kinds."""

    tokens: Floats  # (kinds,) least tokens that each occupies
    counts: Floats  # (kinds,)
    areas: Floats  # (pools, kinds) rank-seconds on the cheapest shape


def stream_seconds(problem: PackingProblem, value: float, effort: int) -> float:
    """Lower bound on the seconds of a step; at most `value`, the seconds of a known plan."""
    table = packing_table(problem)
    high = value - problem.step_seconds
    whole = bisect_span(table, divisible_areas(table, 0), all_ranks(problem), (0.0, high), effort)
    rest, least = divisible_areas(table, 1), high
    for shape in np.flatnonzero(np.isfinite(table.seconds[0])).tolist():
        own = float(table.seconds[0, shape] + table.constants[shape])
        if own < least and least > whole:
            least = max(own, bisect_span(table, rest, [*roles(table, shape, own)], (whole, least), effort))
    return problem.step_seconds + max(whole, least)


def all_ranks(problem: PackingProblem) -> list[RankRole]:
    """All ranks in one role per pool."""
    return [RankRole(pool.ranks, number, 0.0, 0.0, 1) for number, pool in enumerate(problem.pools)]


def roles(table: PackingTable, shape: int, own: float) -> Iterator[RankRole]:
    """The ranks that hold the longest sequence, for `own` seconds, and all others by pool."""
    problem, chosen = table.problem, table.problem.shapes[shape]
    beside = max(0.0, chosen.room - problem.least_tokens(int(table.sizes[0]))) / chosen.degree
    yield RankRole(chosen.degree, chosen.pool, own, beside, 0)
    for number, pool in enumerate(problem.pools):
        count = pool.ranks - (chosen.degree if number == chosen.pool else 0)
        if count:
            yield RankRole(count, number, 0.0, 0.0, 1)


def divisible_areas(table: PackingTable, without: int) -> DivisibleAreas:
    """All sequences but the longest `without`, as divisible kinds."""
    problem = table.problem
    areas = []
    for pool in range(len(problem.pools)):
        mine = [n for n, shape in enumerate(problem.shapes) if shape.pool == pool]
        areas.append(table.rank_seconds[without:, mine].min(axis=1, initial=np.inf))
    tokens = [problem.least_tokens(size) for size in table.sizes[without:].tolist()]
    kinds, counts = np.unique(np.column_stack([tokens, *areas]), axis=0, return_counts=True)
    return DivisibleAreas(kinds[:, 0], counts.astype(np.float64), kinds[:, 1:].T)


def bisect_span(
    table: PackingTable, fluid: DivisibleAreas, ranks: list[RankRole], between: tuple[float, float], effort: int
) -> float:
    """The longest step within `between` that is proven too short; the upper end if all of it is."""
    low, high = between
    if proven_too_short(table, fluid, ranks, high):
        return high
    if low > 0 and not proven_too_short(table, fluid, ranks, low):
        return low
    for _ in range(BISECTIONS[effort]):
        middle = (low + high) / 2
        if proven_too_short(table, fluid, ranks, middle):
            low = middle
        else:
            high = middle
    return low


def proven_too_short(table: PackingTable, fluid: DivisibleAreas, ranks: list[RankRole], span: float) -> bool:
    """Whether some multipliers prove that no plan ends within this time."""
    types = [*rank_types(table, ranks, span)]
    if not types:
        return bool(len(fluid.counts))
    parts = [shares_taken(fluid, ranks[each.role].pool, each) for each in types]
    time, room = (np.minimum(each, PROHIBITIVE) for each in zip(*parts, strict=True))
    of = np.array([each.role for each in types])
    counts = np.array([role.count for role in ranks], dtype=np.float64)

    excess = Excess(fluid.counts, time, room, of, counts)
    starts = [np.append(np.full(len(types), share), np.ones(len(ranks) - 1)) for share in STARTS]
    return multipliers_prove(excess, max(starts, key=excess))


@dataclass(frozen=True, slots=True)
class Excess:
    """By how many ranks the sequences need more than there are, at multipliers: θ of each type, then μ of each role but
    the first.
    """

    sequences: Floats  # (kinds,)
    time: Floats  # (types, kinds) shares of a rank's time
    room: Floats  # (types, kinds) shares of its tokens
    roles: Ints  # (types,)
    ranks: Floats  # (roles,)

    def __call__(self, point: Floats) -> float:
        paid, prices = self.paid(point)
        return float(self.sequences @ paid.min(axis=0) - prices @ self.ranks)

    def paid(self, point: Floats) -> tuple[Floats, Floats]:
        """What each kind pays at each type, (types, kinds); and μ of each role, (roles,)."""
        shares, prices = point[: len(self.roles), None], np.append(1.0, point[len(self.roles) :])
        return prices[self.roles][:, None] * (shares * self.time + (1 - shares) * self.room), prices


class RankType(NamedTuple):
    """A type of rank by its number of micro-batches, exact or at least."""

    role: int
    seconds: float  # most seconds of work
    tokens: float  # most tokens; inf: as many as its micro-batches hold
    per_token: float = 0.0  # seconds of constants per token, within `seconds_in_all`
    seconds_in_all: float = 0.0  # most seconds, constants included by the token


def shares_taken(fluid: DivisibleAreas, pool: int, of: RankType) -> tuple[Floats, Floats]:
    """Shares of a rank's time and of its tokens that each kind takes, (kinds,) each."""
    if of.tokens < np.inf:
        return fluid.areas[pool] / of.seconds, fluid.tokens / of.tokens
    return fluid.areas[pool] / of.seconds, (fluid.areas[pool] + of.per_token * fluid.tokens) / of.seconds_in_all


def rank_types(table: PackingTable, ranks: list[RankRole], span: float) -> Iterator[RankType]:
    """A type for every number of micro-batches, and one for more, which run at least tokens/cap micro-batches."""
    problem = table.problem
    for number, role in enumerate(ranks):
        mine = [shape for shape in problem.shapes if shape.pool == role.pool]
        if not mine:
            continue
        constant, cap = min(shape.line.const for shape in mine), max(shape.cap for shape in mine)
        many = role.min_micro_batches + (COUNTS_DISTINGUISHED if constant > 0 else 0)
        for batches in range(role.min_micro_batches, many):
            seconds, tokens = span - role.long_seconds - batches * constant, role.tokens_beside + batches * cap
            if seconds > 0 and tokens > 0:
                yield RankType(number, seconds, tokens)
        seconds, a_token = span - role.long_seconds - many * constant, constant / cap
        if seconds > 0:
            yield RankType(
                number, seconds, float("inf"), a_token, span - role.long_seconds + a_token * role.tokens_beside
            )


def multipliers_prove(excess: Excess, point: Floats) -> bool:
    """Whether some multipliers make the excess positive: a pattern search from `point`, one coordinate at a time."""
    best, step, types = excess(point), 0.25, len(excess.roles)
    shares = [*zip(excess.time, excess.room, strict=True)]
    while best <= 0 and step > FINEST_STEP:
        gained, (paid, prices) = False, excess.paid(point)
        before, in_all = np.full(paid.shape[1], np.inf), float(prices @ excess.ranks)
        # The least at types whose turn has been, and at those whose has not
        behind = np.minimum.accumulate(np.vstack([paid, before])[::-1])[::-1]
        for axis, price in enumerate(prices[excess.roles].tolist()):
            others, now, time, room = np.minimum(before, behind[axis + 1]), point.item(axis), *shares[axis]
            for share in (min(1.0, now + step), max(0.0, now - step)):
                if share == now:
                    continue
                pays = share * time + (1 - share) * room
                pays = pays if price == 1.0 else price * pays
                value = float(excess.sequences @ np.minimum(others, pays)) - in_all
                if value > best:
                    best, point, paid[axis], gained = value, with_entry(point, axis, share), pays, True
                    break
            if best > 0:
                return True
            before = np.minimum(before, paid[axis])
        for role in range(1, len(prices)):
            of = excess.roles == role
            parts = point[:types, None][of]
            own = (parts * excess.time[of] + (1 - parts) * excess.room[of]).min(axis=0, initial=np.inf)
            others = paid[~of].min(axis=0, initial=np.inf)
            for sign in (step, -step):
                tried = with_entry(prices, role, prices[role] * (1 + sign))
                value = float(excess.sequences @ np.minimum(others, tried[role] * own) - tried @ excess.ranks)
                if value > best:
                    best, prices, gained = value, tried, True
                    point = with_entry(point, types + role - 1, tried[role])
                    paid = excess.paid(point)[0]
                    break
        step = step if gained else step / 2
    return best > 0


def with_entry(point: Floats, axis: int, value: float) -> Floats:
    """The point with another value at one axis."""
    moved: Floats = point.copy()
    moved[axis] = value
    return moved
