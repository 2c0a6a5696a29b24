"""Level a micro-batch: move a sequence out of its slowest group, or swap it for another, while that makes it shorter.

Fills decide long before short and never look back; this looks back. Groups keep their ranks and shapes. Work is counted
in exchanges.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs.step.table import Floats, Ints, Table
from planner.packing.packed import Packed, PackedGroup

FASTEST = 8  # groups that an exchange is sought with first
GAIN = 1e-9  # of the slowest group: less is none
PAIRS = 1_000_000  # of items that are looked at together: some 50 MB


@dataclass(slots=True)
class Row:
    """A micro-batch as arrays: its items, and one entry more for each group, which stands for none of them."""

    shape: Ints  # (groups,)
    time: Floats  # (groups,) seconds
    room: Ints  # (groups,) tokens left
    items: Ints  # (items + groups,) row of the table; of none: its last, empty one
    group: Ints  # (items + groups,)


def polished(table: Table, packed: Packed, exchanges: int) -> Packed:
    """The packing after at most so many exchanges, shared evenly by its micro-batches."""
    number = {item: at for at, item in enumerate(table.items.tolist())}
    seconds = np.vstack([table.seconds, np.zeros((1, len(table.degrees)))])
    sizes = np.append(table.sizes, 0)
    rows = []
    for row in packed:
        arrays = make_row(table, row, number)
        for _ in range(exchanges // len(packed)):
            if not (exchange(arrays, seconds, sizes, FASTEST) or exchange(arrays, seconds, sizes, len(row))):
                break
        rows.append(tuple(groups(table, row, arrays)))
    return tuple(rows)


def make_row(table: Table, row: tuple[PackedGroup, ...], number: dict[int, int]) -> Row:
    shape = np.array([group.shape for group in row])
    held = [[number[item] for item in group.items] for group in row]
    none = len(table.items)
    return Row(
        shape=shape,
        time=np.array(
            [table.seconds[h, g.shape].sum() + table.constants[g.shape] for h, g in zip(held, row, strict=True)]
        ),
        room=np.array([table.rooms[g.shape] - table.sizes[h].sum() for h, g in zip(held, row, strict=True)]),
        items=np.array([item for h in held for item in h] + [none] * len(row)),
        group=np.array([at for at, h in enumerate(held) for _ in h] + [*range(len(row))]),
    )


def exchange(row: Row, seconds: Floats, sizes: Ints, fastest: int) -> bool:
    """With one of so many fastest groups: the exchange after which the slower of the two is fastest.

    Says whether there was one after which that is faster than the slowest was.
    """
    slowest = int(row.time.argmax())
    mine = np.flatnonzero((row.group == slowest) & (sizes[row.items] > 0))
    offered = np.zeros(len(row.time), dtype=bool)
    offered[np.argsort(row.time, kind="stable")[:fastest]] = True
    offered[slowest] = False
    others = np.flatnonzero(offered[row.group])
    if not len(mine) or not len(others):
        return False
    best, pair, block = row.time[slowest] * (1 - GAIN), None, max(1, PAIRS // len(others))
    for some in (mine[start : start + block] for start in range(0, len(mine), block)):
        after = lasts(row, seconds, sizes, slowest, some, others)
        i, j = np.unravel_index(int(after.argmin()), after.shape)
        if after[i, j] < best:
            best, pair = after[i, j], (int(some[i]), int(others[j]))
    if pair:
        swap(row, seconds, sizes, *pair)
    return pair is not None


def lasts(row: Row, seconds: Floats, sizes: Ints, slowest: int, mine: Ints, others: Ints) -> Floats:
    """(mine, others): how long the slower of two groups takes after an exchange; inf where there is no room for it."""
    given, taken, theirs = row.items[mine][:, None], row.items[others][None, :], row.group[others][None, :]
    shape, shapes = row.shape[slowest], row.shape[theirs]
    with np.errstate(invalid="ignore"):
        after: Floats = np.maximum(
            row.time[slowest] - seconds[given, shape] + seconds[taken, shape],
            row.time[theirs] - seconds[taken, shapes] + seconds[given, shapes],
        )
    more = sizes[given] - sizes[taken]
    after[(row.room[theirs] < more) | (row.room[slowest] < -more) | np.isnan(after)] = np.inf
    return after


def swap(row: Row, seconds: Floats, sizes: Ints, one: int, other: int) -> None:
    """Two items change groups; or one does, where the other is none."""
    for here, there in ((one, other), (other, one)):
        group, out, into = row.group[here], row.items[here], row.items[there]
        row.time[group] += seconds[into, row.shape[group]] - seconds[out, row.shape[group]]
        row.room[group] += sizes[out] - sizes[into]
    if sizes[row.items[other]]:
        row.items[[one, other]] = row.items[[other, one]]
    else:  # every group keeps its own none
        row.group[one] = row.group[other]


def groups(table: Table, row: tuple[PackedGroup, ...], arrays: Row) -> Iterator[PackedGroup]:
    """The groups as they are now."""
    for at, group in enumerate(row):
        held = arrays.items[(arrays.group == at)]
        yield replace(group, items=tuple(table.items[held[held < len(table.items)]].tolist()))
