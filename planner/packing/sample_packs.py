"""Packs of samples: as few as can be found, none above its budget of any resource.

A sample needs some of each resource (tokens of the LLM, patches of an encoder), a pack has a budget of each. Samples
go, largest first, to the first pack with room (first-fit decreasing in several dimensions; Kou and Markowsky, IBM J.
Res. Dev. 21, 1977), in several orders; few samples also by filling one pack after the other with what is most like the
room that it has left (dot products; Panigrahy et al., Heuristics for vector bin packing, 2011). The first order that
reaches the bound, or the fewest packs, is taken.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.plan.pack_fill import fewest_packs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MANY = 20_000  # samples from which on one order is tried: it is within a few packs of the bound
FEW = 3_000  # samples up to which packs are filled one by one: seconds grow with the square
BLOCK = 64  # packs whose largest room is looked at first
TRIES = 4  # blocks that turn out to have no room, before all packs are looked at


def pack_samples(loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """The pack of each sample, (samples,), counted from 0; `loads`: (samples, resources); `budgets`: (resources,).

    Raises ValueError where a sample alone is above a budget.
    """
    import numpy as np

    above = np.flatnonzero((loads > budgets).any(axis=1))
    if len(above):
        raise ValueError(f"sample {above[0]} alone is above a budget")
    bound, best, fewest = fewest_packs(loads, budgets), np.zeros(len(loads), dtype=np.int64), len(loads) + 1
    for found in packings(loads, budgets):
        count = int(found.max(initial=-1)) + 1
        if count < fewest:
            best, fewest = found, count
        if fewest == bound:
            break
    return best


def packings(loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]") -> "Iterator[NDArray[np.int64]]":
    """Packings to choose from."""
    import numpy as np

    shares = loads / budgets
    keys = [shares.max(axis=1), shares.sum(axis=1), *(shares.T if len(budgets) > 1 else ())]
    for key in keys[: 1 if len(loads) > MANY else len(keys)]:
        # Equal samples stand together, and in their own order: permuted input gives as many packs
        order = np.lexsort((*loads.T, -shares.sum(axis=1), -key))
        yield first_fit(loads, budgets, order)
    if len(loads) <= FEW:
        yield one_by_one(shares, np.lexsort((*loads.T, -shares.sum(axis=1))), loads, budgets)


def first_fit(
    loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]", order: "NDArray[np.int64]"
) -> "NDArray[np.int64]":
    """Each sample, in this order, in the first pack with room."""
    import numpy as np

    packs, found = OpenPacks(budgets, len(loads)), np.zeros(len(loads), dtype=np.int64)
    places = found.tolist()
    for sample, load in zip(order.tolist(), loads[order].tolist(), strict=True):
        places[sample] = packs.put(load)
    found[:] = places
    return found


class OpenPacks:
    """The room of packs, resource by resource, and the largest room in each block of them."""

    def __init__(self, budgets: "NDArray[np.int64]", most: int) -> None:
        import numpy as np

        blocks = -(-most // BLOCK) + 1
        # Packs that are not open yet have the whole budget: the first of them takes what no other can
        self.rooms = [np.full(blocks * BLOCK, budget, dtype=np.int64) for budget in budgets]
        self.largest = [np.full(blocks, budget, dtype=np.int64) for budget in budgets]
        self.opened = 0

    def put(self, load: list[int]) -> int:
        """Put a sample into the first pack with room, and return its number."""
        found = self.first_with_room(load)
        self.opened = max(self.opened, found + 1)
        block = found // BLOCK
        for rooms, largest, amount in zip(self.rooms, self.largest, load, strict=True):
            if amount:
                rooms[found] -= amount
                largest[block] = rooms[block * BLOCK : (block + 1) * BLOCK].max()
        return found

    def first_with_room(self, load: list[int]) -> int:
        """The first pack with room for a load, which may be one that is not open yet."""
        blocks = with_room([largest[: self.opened // BLOCK + 1] for largest in self.largest], load).nonzero()[0]
        for block in blocks[:TRIES].tolist():
            first = int(block) * BLOCK
            able = with_room([rooms[first : first + BLOCK] for rooms in self.rooms], load)
            place = int(able.argmax())
            if able[place]:
                return first + place
        return int(with_room([rooms[: self.opened + 1] for rooms in self.rooms], load).argmax())


def with_room(rooms: "list[NDArray[np.int64]]", load: list[int]) -> "NDArray[np.bool_]":
    """Which rooms, given by resource, take a load."""
    able = rooms[0] >= load[0]
    for room, amount in zip(rooms[1:], load[1:], strict=True):
        able &= room >= amount
    return able


def one_by_one(
    shares: "NDArray[np.float64]", order: "NDArray[np.int64]", loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]"
) -> "NDArray[np.int64]":
    """Each pack takes, of the samples that it has room for, the one with the largest product with its room; of equal
    ones the first in this order.
    """
    import numpy as np

    found, pack, room, open_pack = np.zeros(len(loads), dtype=np.int64), 0, budgets.copy(), False
    waiting = order
    weights = loads.sum(axis=0) / budgets  # a resource that is scarce counts more
    while len(waiting):
        able = (loads[waiting] <= room).all(axis=1)
        if not able.any():
            assert open_pack, "every sample fits into an empty pack"
            pack, room, open_pack = pack + 1, budgets.copy(), False
            continue
        alike = sum(shares[waiting, at] * (weights[at] * room[at] / budgets[at]) for at in range(len(budgets)))
        place = int(np.where(able, alike, -1.0).argmax())
        sample = waiting[place]
        found[sample], room, open_pack = pack, room - loads[sample], True
        waiting = np.delete(waiting, place)
    return found
