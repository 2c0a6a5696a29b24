"""Loads divided over bins so that the fullest has little: longest first, then exchanges.

Longest first, each to the bin with least, is within a third of the optimum (Graham, SIAM J. Appl. Math. 17, 1969).
Exchanges move a load out of the fullest bin, or swap it for another, while the fuller of the two bins gets less.
"""

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GAIN = 1e-9  # of the fullest bin: a smaller gain does not count, where no other is asked for
AT_ONCE = 16  # loads of the fullest bin that are looked at together: arrays stay in a processor's cache


def longest_first(
    loads: "NDArray[np.float64]", start: "NDArray[np.float64]", room: int | None = None
) -> "NDArray[np.int64]":
    """The bin of each load, (loads,), each in turn of the longest to the bin with least; of equal ones the first.
    `start`: (bins,) what bins have to begin with; `room`: loads that a bin takes, None: any number.
    """
    import numpy as np

    filled, counts, bins = start.astype(float), np.zeros(len(start), dtype=np.int64), np.zeros(len(loads), np.int64)
    for at in np.argsort(-loads, kind="stable").tolist():
        least = int(filled.argmin())
        bins[at] = least
        filled[least] += loads[at]
        counts[least] += 1
        if room is not None and counts[least] >= room:
            filled[least] = np.inf
    return bins


def exchange_loads(
    seconds: "NDArray[np.float64]",
    bins: "NDArray[np.int64]",
    start: "NDArray[np.float64]",
    exchanges: int,
    may_move: bool = True,
    gain: float = GAIN,
) -> "NDArray[np.int64]":
    """The bin of each load after at most so many exchanges. `seconds`: (loads, bins) of a load in each bin; `bins`:
    (loads,) where they are; `start`: (bins,) as above; `may_move`: whether bins may get more or fewer loads; `gain`: of
    the fullest bin, what an exchange has to bring.
    """
    import numpy as np

    bins, count = bins.copy(), len(start)
    every = np.arange(len(bins))
    filled = start + np.bincount(bins, seconds[every, bins], minlength=count)
    for _ in range(exchanges):
        fullest = int(filled.argmax())
        mine = np.flatnonzero(bins == fullest)
        shorter = seconds[:, fullest] < seconds[mine, fullest].max(initial=0.0)  # others leave the fullest no less
        others = np.flatnonzero((bins != fullest) & shorter)
        moved = np.arange(count if may_move else 0)
        after, one, other = inf, 0, 0
        for first in range(0, len(mine), AT_ONCE):
            some = mine[first : first + AT_ONCE]
            both = after_moves(seconds, filled, some, fullest, moved), after_swaps(seconds, filled, some, others, bins)
            least, of_mine, of_others = least_of(*both)
            after, one, other = min((after, one, other), (least, first + of_mine, of_others))
        if after >= filled[fullest] * (1.0 - gain):
            break
        given = int(mine[one])
        taken = int(others[other - len(moved)]) if other >= len(moved) else None
        into = other if taken is None else int(bins[taken])
        for load, here, there in ((given, fullest, into), *(() if taken is None else ((taken, into, fullest),))):
            filled[here] -= seconds[load, here]
            filled[there] += seconds[load, there]
            bins[load] = there
    return bins


def least_of(moved: "NDArray[np.float64]", swapped: "NDArray[np.float64]") -> tuple[float, int, int]:
    """The least entry of two arrays side by side, and its two indices, of equals the first; infinite where there is
    none.
    """
    found = [(inf, 0, 0)]
    for each, first in ((moved, 0), (swapped, moved.shape[1])):
        if each.size:
            place = divmod(int(each.argmin()), each.shape[1])
            found.append((float(each[place]), place[0], first + place[1]))
    return min(found)


def after_moves(
    seconds: "NDArray[np.float64]",
    filled: "NDArray[np.float64]",
    mine: "NDArray[np.int64]",
    fullest: int,
    into: "NDArray[np.int64]",
) -> "NDArray[np.float64]":
    """(mine, into) what the fuller of two bins has after a move of a load of the fullest one."""
    import numpy as np

    given, received = seconds[mine, fullest][:, None], seconds[mine][:, into]
    after = np.maximum(filled[fullest] - given, filled[into] + received)
    after[:, into == fullest] = np.inf
    return np.asarray(after)


def after_swaps(
    seconds: "NDArray[np.float64]",
    filled: "NDArray[np.float64]",
    mine: "NDArray[np.int64]",
    others: "NDArray[np.int64]",
    bins: "NDArray[np.int64]",
) -> "NDArray[np.float64]":
    """(mine, others) what the fuller of two bins has after loads of one bin, `mine`, swap with those of others."""
    import numpy as np

    fullest, theirs = int(bins[mine[0]]), bins[others]
    given, received = seconds[mine, fullest][:, None], seconds[mine].take(theirs, axis=1)
    received += filled[theirs] - seconds[others, theirs]
    return np.asarray(np.maximum(filled[fullest] - given + seconds[others, fullest], received, out=received))
