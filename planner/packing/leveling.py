"""Level a micro-batch: move an item out of its slowest group, or swap it for another, while that shortens it.

A fill decides long sequences before short ones and never revisits a choice; these exchanges do. Groups keep their ranks
and shapes. Work is counted in exchanges.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs import Floats, Ints, PackingTable
from planner.packing.packed_groups import PackedGroup, Packing

FASTEST = 8  # groups tried first as partners of an exchange
GAIN = 1e-9  # relative to the slowest group: a smaller gain does not count
PAIRS = 1_000_000  # of items evaluated at once: about 50 MB


@dataclass(slots=True)
class MicroBatchArrays:
    """A micro-batch as arrays: its items, and for each group one empty entry, so that a move is a swap with it."""

    shape: Ints  # (groups,)
    seconds: Floats  # (groups,) seconds
    tokens_left: Ints  # (groups,) tokens left
    items: Ints  # (items + groups,) row of the table; its last, zero row for an empty entry
    group: Ints  # (items + groups,) index of the entry's group


def level_micro_batches(table: PackingTable, packed: Packing, exchanges: int) -> Packing:
    """The packing after at most `exchanges` exchanges, divided evenly among its micro-batches."""
    number = {item: at for at, item in enumerate(table.items.tolist())}
    seconds = np.vstack([table.seconds, np.zeros((1, len(table.degrees)))])
    sizes = np.append(table.sizes, 0)
    micro_batches = []
    for micro_batch in packed:
        arrays = make_arrays(table, micro_batch, number)
        for _ in range(exchanges // len(packed)):
            if not (
                exchange_items(arrays, seconds, sizes, FASTEST)
                or exchange_items(arrays, seconds, sizes, len(micro_batch))
            ):
                break
        micro_batches.append(tuple(updated_groups(table, micro_batch, arrays)))
    return tuple(micro_batches)


def make_arrays(table: PackingTable, micro_batch: tuple[PackedGroup, ...], number: dict[int, int]) -> MicroBatchArrays:
    """A micro-batch as arrays; `number`: item → row of the table."""
    shape = np.array([group.shape for group in micro_batch])
    entries = [[number[item] for item in group.items] for group in micro_batch]
    empty = len(table.items)
    return MicroBatchArrays(
        shape=shape,
        seconds=np.array(
            [
                table.seconds[h, g.shape].sum() + table.constants[g.shape]
                for h, g in zip(entries, micro_batch, strict=True)
            ]
        ),
        tokens_left=np.array(
            [table.rooms[g.shape] - table.sizes[h].sum() for h, g in zip(entries, micro_batch, strict=True)]
        ),
        items=np.array([item for h in entries for item in h] + [empty] * len(micro_batch)),
        group=np.array([at for at, h in enumerate(entries) for _ in h] + [*range(len(micro_batch))]),
    )


def exchange_items(arrays: MicroBatchArrays, seconds: Floats, sizes: Ints, fastest: int) -> bool:
    """Apply the best exchange between the slowest group and one of so many fastest ones.

    The best leaves the slower of the two groups quickest. Returns whether any exchange was a gain.
    """
    slowest = int(arrays.seconds.argmax())
    mine = np.flatnonzero((arrays.group == slowest) & (sizes[arrays.items] > 0))
    offered = np.zeros(len(arrays.seconds), dtype=bool)
    offered[np.argsort(arrays.seconds, kind="stable")[:fastest]] = True
    offered[slowest] = False
    others = np.flatnonzero(offered[arrays.group])
    if not len(mine) or not len(others):
        return False
    best, pair, block = arrays.seconds[slowest] * (1 - GAIN), None, max(1, PAIRS // len(others))
    for some in (mine[start : start + block] for start in range(0, len(mine), block)):
        after = seconds_after_exchange(arrays, seconds, sizes, slowest, some, others)
        i, j = np.unravel_index(int(after.argmin()), after.shape)
        if after[i, j] < best:
            best, pair = after[i, j], (int(some[i]), int(others[j]))
    if pair:
        swap_items(arrays, seconds, sizes, *pair)
    return pair is not None


def seconds_after_exchange(
    arrays: MicroBatchArrays, seconds: Floats, sizes: Ints, slowest: int, mine: Ints, others: Ints
) -> Floats:
    """(mine, others) seconds of the slower of two groups after an exchange; inf where it does not fit."""
    given, taken, theirs = arrays.items[mine][:, None], arrays.items[others][None, :], arrays.group[others][None, :]
    shape, shapes = arrays.shape[slowest], arrays.shape[theirs]
    with np.errstate(invalid="ignore"):
        after: Floats = np.maximum(
            arrays.seconds[slowest] - seconds[given, shape] + seconds[taken, shape],
            arrays.seconds[theirs] - seconds[taken, shapes] + seconds[given, shapes],
        )
    more = sizes[given] - sizes[taken]
    after[(arrays.tokens_left[theirs] < more) | (arrays.tokens_left[slowest] < -more) | np.isnan(after)] = np.inf
    return after


def swap_items(arrays: MicroBatchArrays, seconds: Floats, sizes: Ints, one: int, other: int) -> None:
    """Swap the groups of two items; or move one, where the other entry is empty."""
    for here, there in ((one, other), (other, one)):
        group, out, into = arrays.group[here], arrays.items[here], arrays.items[there]
        arrays.seconds[group] += seconds[into, arrays.shape[group]] - seconds[out, arrays.shape[group]]
        arrays.tokens_left[group] += sizes[out] - sizes[into]
    if sizes[arrays.items[other]]:
        arrays.items[[one, other]] = arrays.items[[other, one]]
    else:  # every group keeps its own empty entry
        arrays.group[one] = arrays.group[other]


def updated_groups(
    table: PackingTable, micro_batch: tuple[PackedGroup, ...], arrays: MicroBatchArrays
) -> Iterator[PackedGroup]:
    """The groups with the items that the arrays assign to them."""
    for at, group in enumerate(micro_batch):
        entries = arrays.items[(arrays.group == at)]
        yield replace(group, items=tuple(table.items[entries[entries < len(table.items)]].tolist()))
