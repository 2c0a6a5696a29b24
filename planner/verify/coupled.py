"""A bound that couples tokens in flight with time, for batches in which one sequence dwarfs the rest.

The area bound lets ranks work at full tilt from start to end. But while the longest sequence L holds d ranks for
t_d(L), the other N − d ranks run out of memory for tokens long before they run out of time, and what they cannot hold
lengthens the other micro-batches. For every degree d of L and number M of micro-batches, each other sequence i goes

    (a) beside L, on the other N − d ranks    of its cheapest area a_i,   Σ s_i ≤ (N − d)·cap,  Σ a_i ≤ (N − d)·C₁
    (b) into L's group                        of t_d(i) seconds,          Σ s_i ≤ d·cap − s_L,  t_d(L) + Σ t_d(i) ≤ C₁
    (c) to the other micro-batches            of its cheapest area a_i,   Σ s_i ≤ (M − 1)·N·cap, Σ a_i ≤ N·C_rest

in parts, if that helps, and C₁ + C_rest is the least there can be. Any multipliers μ, λ ≥ 0 of these rows give a bound
by duality: every sequence takes the cheapest of its three ways on its own, which is a minimum over an array. A pattern
search over the four multipliers makes it good; it is valid wherever the search stops. The least over d and M is the
bound, since a plan has one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.costs.sequences import Sequences

Floats = NDArray[np.float64]

EVALUATIONS = 400  # of the dual, for one degree and number of micro-batches
FINEST = 1e-4  # of the first step of the pattern search


@dataclass(frozen=True, slots=True)
class Rest:
    """All sequences but the longest, for one degree of the longest. Arrays have one entry each."""

    ranks: int  # N
    degree: int  # d, of the longest
    longest: float  # t_d(L), seconds
    tokens: Floats
    beside: Floats  # cheapest rank-seconds on degrees of at most N − d; inf where there is none
    within: Floats  # seconds on L's own degree
    elsewhere: Floats  # cheapest rank-seconds on any degree
    room: tuple[float, float, float]  # tokens beside, within, elsewhere


def coupled_seconds(problem: Sequences, fewest_rows: int, row_constant: float) -> float:
    """The least seconds of a step over all degrees of its longest sequence and numbers of micro-batches."""
    items = sorted(problem.sizes, key=lambda item: (-problem.sizes[item], item))
    tokens = np.array([problem.sizes[item] for item in items], dtype=np.float64)
    seconds = {degree: times(problem, degree, items, tokens) for degree in problem.degrees}
    area = np.min([degree * of_degree for degree, of_degree in seconds.items()], axis=0)
    least = inf
    for rows in (fewest_rows, fewest_rows + 1):  # with one more, (c) has room for all: yet more only add constants
        if rows * row_constant + area.sum() / problem.ranks < least:
            for degree in problem.choices(items[0]):
                rest = rest_of(problem, degree, rows, tokens, seconds)
                least = min(least, rows * row_constant + best_multipliers(rest))
    return least + problem.step_seconds


def times(problem: Sequences, degree: int, items: list[int], tokens: Floats) -> Floats:
    """Seconds of each sequence alone on a degree, without the constant; inf where it may not run."""
    line = problem.lines[degree]
    allowed = np.array([degree in problem.choices(item) for item in items])
    return np.where(allowed, line.quad * tokens * tokens + line.lin * tokens, inf)


def rest_of(problem: Sequences, degree: int, rows: int, tokens: Floats, seconds: dict[int, Floats]) -> Rest:
    """The other sequences' ways when the longest has this degree and there are `rows` micro-batches."""
    areas = {d: d * of_degree[1:] for d, of_degree in seconds.items()}
    narrow = [of_degree for d, of_degree in areas.items() if d <= problem.ranks - degree]
    cap = float(problem.cap)
    return Rest(
        ranks=problem.ranks,
        degree=degree,
        longest=float(seconds[degree][0]),
        tokens=tokens[1:],
        beside=np.min(narrow, axis=0) if narrow else np.full(len(tokens) - 1, inf),
        within=seconds[degree][1:],
        elsewhere=np.min([*areas.values()], axis=0),
        room=(
            (problem.ranks - degree) * cap,
            degree * cap - float(tokens[0]),
            (rows - 1) * problem.ranks * cap,
        ),
    )


def dual(rest: Rest, beside_time: float, prices: Floats) -> float:
    """The bound that multipliers give: `beside_time` of the row of areas beside L, `prices` of the three rooms.

    C₁ costs 1, so the multiplier of L's own group is what the areas beside it leave of it.
    """
    within_time = 1.0 - (rest.ranks - rest.degree) * beside_time
    if within_time < 0:
        return -inf
    beside, within, elsewhere = prices
    ways = (
        weighted(beside_time, rest.beside) + beside * rest.tokens,
        weighted(within_time, rest.within) + within * rest.tokens,
        rest.elsewhere / rest.ranks + elsewhere * rest.tokens,
    )
    paid = float(np.minimum(np.minimum(ways[0], ways[1]), ways[2]).sum())
    return within_time * rest.longest + paid - float(prices @ np.array(rest.room))


def weighted(weight: float, cost: Floats) -> Floats:
    """weight·cost, where a way that does not exist stays infinitely dear even at weight 0."""
    return np.where(np.isinf(cost), inf, weight * np.where(np.isinf(cost), 0.0, cost))


def best_multipliers(rest: Rest) -> float:
    """The best bound found over the multipliers, from both ends of the first one's range."""
    if not len(rest.tokens):
        return rest.longest
    others = rest.ranks - rest.degree
    scale = float(rest.elsewhere.sum() / rest.tokens.sum()) / rest.ranks  # seconds a token costs
    steps = np.array([0.25 / rest.ranks if others else 0.0, *[scale / 2] * 3])
    ends = {0.0, 1.0 / rest.ranks if others else 0.0}

    def bound(x: Floats) -> float:
        return dual(rest, float(x[0]), x[1:])

    return max(climb(bound, np.array([end, 0.0, 0.0, 0.0]), steps) for end in sorted(ends))


def climb(bound: Callable[[Floats], float], start: Floats, steps: Floats) -> float:
    """Pattern search for the maximum of a concave function over x ≥ 0: one coordinate at a time, then finer."""
    point, best, evaluations = start, bound(start), 1
    finest = FINEST * float(steps.max())
    while evaluations < EVALUATIONS and steps.max() > finest:
        gained = False
        for axis in range(len(point)):
            for sign in (1.0, -1.0):
                tried = point.copy()
                tried[axis] = max(0.0, tried[axis] + sign * steps[axis])
                value = bound(tried)
                evaluations += 1
                if value > best:
                    point, best, gained = tried, value, True
                    break
        steps = steps * (1.3 if gained else 0.5)
    return best
