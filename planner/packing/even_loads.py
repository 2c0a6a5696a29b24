"""Loads divided over bins so that the fullest has little: longest first, then exchanges.

Longest first, each to the bin with least, is within a third of the optimum (Graham, SIAM J. Appl. Math. 17, 1969).
Exchanges move a load out of the fullest bin, or swap it for another, while the fuller of the two bins gets less.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GAIN = 1e-9  # of the fullest bin: a smaller gain does not count


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
) -> "NDArray[np.int64]":
    """The bin of each load after at most so many exchanges. `seconds`: (loads, bins) of a load in each bin; `bins`:
    (loads,) where they are; `start`: (bins,) as above; `may_move`: whether bins may get more or fewer loads.
    """
    import numpy as np

    bins, count = bins.copy(), len(start)
    every = np.arange(len(bins))
    filled = start + np.bincount(bins, seconds[every, bins], minlength=count)
    for _ in range(exchanges):
        fullest = int(filled.argmax())
        mine, others = np.flatnonzero(bins == fullest), np.flatnonzero(bins != fullest)
        swapped = pair_after(seconds, filled, mine, others, fullest, bins[others])
        moved = pair_after(seconds, filled, mine, None, fullest, np.arange(count)) if may_move else swapped[:, :0]
        after = np.concatenate((moved, swapped), axis=1)
        if not after.size or after.min() >= filled[fullest] * (1.0 - GAIN):
            break
        one, other = divmod(int(after.argmin()), after.shape[1])
        given = int(mine[one])
        taken = int(others[other - moved.shape[1]]) if other >= moved.shape[1] else None
        into = other if taken is None else int(bins[taken])
        for load, here, there in ((given, fullest, into), *(() if taken is None else ((taken, into, fullest),))):
            filled[here] -= seconds[load, here]
            filled[there] += seconds[load, there]
            bins[load] = there
    return bins


def pair_after(
    seconds: "NDArray[np.float64]",
    filled: "NDArray[np.float64]",
    mine: "NDArray[np.int64]",
    others: "NDArray[np.int64] | None",
    fullest: int,
    theirs: "NDArray[np.int64]",
) -> "NDArray[np.float64]":
    """(mine, others) what the fuller of two bins has after an exchange; where `others` is None, after a move."""
    import numpy as np

    given, received = seconds[mine, fullest][:, None], seconds[mine][:, theirs]
    own, taken = (0.0, 0.0) if others is None else (seconds[others, fullest][None, :], seconds[others, theirs][None, :])
    after: NDArray[np.float64] = np.maximum(filled[fullest] - given + own, filled[theirs] - taken + received)
    return np.where(theirs == fullest, np.inf, after)
