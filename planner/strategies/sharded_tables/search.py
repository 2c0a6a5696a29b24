"""Places tables on a group: longest first on the least loaded, exchanges at the slowest rank, partial rebuilds.

A cap on the seconds of a shard says which way of cutting a table is the cheapest that is allowed: large shards are
cheap and cannot be balanced, small ones cost more. Several caps are tried (`construct`). `improve` moves or swaps
shards of the slowest rank, or cuts one of its tables otherwise. `rebuild` takes some away and places them again.
"""

import random
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.costs.tables import (
    ON_ALL,
    ON_NODES,
    ON_RANKS,
    ShardingGroup,
    ShardOptions,
    cheapest,
    least_seconds,
    table_bound,
)
from planner.strategies.sharded_tables.exact_placement import exact_placement, small_enough
from planner.strategies.sharded_tables.placement import ROUNDING, Placement

CAPS = (1.0, 0.7, 0.5, 0.35, 0.25)  # of seconds of a shard, over the bound
PRICES = (1.0, 1.5, 3.0, 10.0)  # of memory, over the bound's
CLOSE = 1.001  # over the bound: nothing better is looked for
ROUNDS = (0, 5, 12, 60, 200)  # rebuilds, by effort
MOST_MOVES = 400


def place_tables(
    options: ShardOptions, group: ShardingGroup, room: float, host_room: float, effort: int
) -> Placement | None:
    """The best placement found; None where none fits. The same input gives the same placement."""
    bound = table_bound(options, group, room)
    if bound == inf:
        return None
    best, saved = None, None
    blank = Placement(options, group, room, host_room)
    _, price = least_seconds(options, group, room, inf)
    for factor in PRICES if price else (0.0,):
        for cap in CAPS:
            found = construct(blank, bound * cap, price * factor)
            if found:
                improve(blank, bound * CLOSE)
                if best is None or blank.slowest < best:
                    best, saved = blank.slowest, blank.saved()
        if best is not None:
            break
    if saved is None:
        return None
    blank.restore(saved)
    rebuild(blank, bound * CLOSE, ROUNDS[effort])
    if small_enough(options, group) and blank.slowest > bound * CLOSE:
        exact = exact_placement(options, group, room)
        return exact if exact and exact.slowest < blank.slowest else blank
    return blank


def construct(placement: Placement, cap: float, price: float) -> bool:
    """Place all tables, each in the cheapest way with shards of at most `cap` seconds, the longest first; `price`: of a
    byte, in seconds. False where one has no room in any way.
    """
    options, count = placement.options, len(placement.options.names)
    placement.restore((np.full(count, -1, dtype=np.int64), [()] * count))
    values = options.totals + price * options.held * options.ranks
    values = np.where(placement.seconds <= cap, values, values.max() * (2.0 + placement.seconds / cap))
    chosen = cheapest(options, values)
    cuts, seconds = options.cut[chosen], placement.seconds[chosen]
    rank = np.where(np.isin(cuts, ON_ALL), 0, np.where(np.isin(cuts, ON_NODES), 1, 2))
    for table in np.lexsort((-seconds, rank)):
        where = placement.least_loaded(int(chosen[table]))
        if where is not None:
            placement.put(int(table), int(chosen[table]), where)
        elif not placement.put_best(int(table)):
            return False
    return True


def improve(placement: Placement, enough: float) -> None:
    """Exchange shards of the slowest rank, or cut one of its tables otherwise, as long as that makes it faster."""
    for _ in range(MOST_MOVES):
        if placement.slowest <= enough or not (exchange(placement) or recut(placement)):
            return


def exchange(placement: Placement) -> bool:
    """Move a shard of the slowest rank to another, or swap it with one there: the best such for the slower of the two.
    Only shards that are on one rank each are exchanged.
    """
    rank, options, where = int(placement.loads.argmax()), placement.options, placement.where
    single = np.flatnonzero(np.isin(options.cut[placement.chosen], ON_RANKS))
    mine = [int(table) for table in single if rank in where[table]]
    others = [(int(table), at) for table in single if rank not in where[table] for at in where[table]]
    others += [(-1, at) for at in range(placement.group.ranks) if at != rank]  # a move is a swap with nothing
    if not mine or not others:
        return False
    tables, at = np.array(others, dtype=np.int64).T

    def given(values: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the rank has less of some values after each exchange, and the other more, (mine, others)."""
        theirs = np.where(tables >= 0, values[placement.chosen[tables]], 0.0)
        return values[placement.chosen[mine]][:, None] - theirs

    seconds = given(placement.seconds)
    worse = np.maximum(placement.loads[rank] - seconds, placement.loads[at] + seconds)
    for held, room, of in (
        (placement.held, placement.room, options.held),
        (placement.host, placement.host_room, options.host),
    ):
        moved = given(of)
        worse[np.maximum(held[rank] - moved, held[at] + moved) > room * ROUNDING] = inf
    for number, table in enumerate(mine):
        worse[number, np.isin(at, where[table])] = inf  # a table is once on a rank
    first, second = divmod(int(worse.argmin()), len(others))
    if worse[first, second] >= placement.loads[rank] * (1 - 1e-9):
        return False
    moves = {mine[first]: (rank, int(at[second])), int(tables[second]): (int(at[second]), rank)}
    for table, (old, new) in moves.items():
        if table >= 0:
            option, places = placement.take(table)
            placement.put(table, option, tuple(sorted(new if place == old else place for place in places)))
    return True


def recut(placement: Placement) -> bool:
    """Cut a table of the slowest rank otherwise: the best that makes all ranks that it touches faster than that."""
    slowest, best = placement.slowest, None
    for table in placement.on_rank(int(placement.loads.argmax())):
        before = placement.take(table)
        for option in placement.options.of(table):
            where = placement.least_loaded(option)
            if where is not None and option != before[0]:
                placement.add(option, where, 1.0)
                found = placement.slowest, float(np.square(placement.loads).sum()), table, option, where
                best = found if best is None or found < best else best
                placement.add(option, where, -1.0)
        placement.put(table, *before)
    if best is None or best[0] >= slowest * (1 - 1e-9):
        return False
    placement.take(best[2])
    placement.put(*best[2:])
    return True


def rebuild(placement: Placement, enough: float, rounds: int) -> None:
    """Take the tables of the slowest rank and some others away and place them again, as long as it helps."""
    draw, count = random.Random(len(placement.where)), len(placement.where)
    best, saved = placement.slowest, placement.saved()
    for _ in range(rounds if count > 1 else 0):
        if best <= enough:
            break
        slow = placement.on_rank(int(placement.loads.argmax()))
        fast = placement.on_rank(int(placement.loads.argmin()))
        some = {*draw.sample(slow, min(3, len(slow))), *draw.sample(fast, min(2, len(fast)))}
        some |= {draw.randrange(count) for _ in range(3)}
        order = sorted(some, key=lambda table: (-placement.seconds[placement.chosen[table]], table))
        for table in order:
            placement.take(table)
        if all(placement.put_best(table) for table in order):
            improve(placement, enough)
            if placement.slowest <= best:
                best, saved = placement.slowest, placement.saved()
                continue
        placement.restore(saved)
    placement.restore(saved)
