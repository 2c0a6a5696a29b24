"""A lower bound on the seconds of the slowest rank of a group, over every placement of its tables.

A plan of v seconds has no shard of more than v, and the ranks together have v·N at most. So v is no less than

    f(v) = max over λ ≥ 0 of (1/N)·[ Σ_t min over ways o with s_o ≤ v of (S_o + λ·b_o) − λ·N·room ],

where s_o are the seconds of a rank, S_o of all, b_o bytes of all, and λ prices the memory, of which a rank has `room`:
the Lagrangian dual of the linear program in which tables may be cut in several ways at once. f falls as v grows, and
the least v with v ≥ f(v) is the bound.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.costs.tables.shard_options import ShardOptions
from planner.costs.tables.sharding_group import ShardingGroup

HALVINGS, PRICES = 40, 24  # of an interval of seconds; tried prices of memory
EXACT = 1e-9  # relative


def table_bound(options: ShardOptions, group: ShardingGroup, room: float) -> float:
    """Seconds that no placement of these tables on a group beats; inf where none fits by bytes alone."""
    low, price = least_seconds(options, group, room, inf)
    low = max(low, float(options.least(options.seconds).max()))
    if low == inf or least_seconds(options, group, room, low, price)[0] <= low * (1 + EXACT):
        return low
    high = 2.0 * low
    while least_seconds(options, group, room, high, price)[0] > high:
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if least_seconds(options, group, room, middle, price)[0] > middle:
            low = middle
        else:
            high = middle
    return low


def least_seconds(
    options: ShardOptions, group: ShardingGroup, room: float, longest: float, price: float | None = None
) -> tuple[float, float]:
    """`f` of the `longest` shard, and the price of memory that gives it, in seconds a byte; a given one stands."""
    able = options.seconds <= longest * (1 + EXACT)
    seconds = np.where(able, options.totals, inf)
    held = np.where(able, options.held * options.ranks, inf)
    if float(options.least(held).sum()) > room * group.ranks:
        return inf, 0.0

    def at(each: float) -> float:
        least = options.least(seconds + each * options.held * options.ranks)
        return (float(least.sum()) - each * group.ranks * room) / group.ranks

    if price is not None:
        return at(price), price
    if memory_left(options, seconds, group.ranks * room) >= 0:
        return at(0.0), 0.0
    low, high = 0.0, float(options.totals.max() / max(1.0, room))
    for _ in range(PRICES):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        low, high = (left, high) if at(left) < at(right) else (low, right)
    return max((at(each), each) for each in (0.0, low, high))


def memory_left(options: ShardOptions, seconds: NDArray[np.float64], room: float) -> float:
    """Bytes that are left of a group's where each table is cut in the way of least of these seconds."""
    chosen = cheapest(options, seconds)
    return float(room - (options.held * options.ranks)[chosen].sum())


def cheapest(options: ShardOptions, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The option of each table with the least value, the first of equal ones, (tables,)."""
    least = np.flatnonzero(values == options.least(values)[options.table])
    _, first = np.unique(options.table[least], return_index=True)
    return least[first].astype(np.int64)
