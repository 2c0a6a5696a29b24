"""How few packs can hold some samples: a bound that no packing goes below.

A pack has a budget of each resource (tokens, patches, frames), and a sample needs some of each. The bound is the
largest of: one pack; L2 of every resource alone (Martello and Toth, Discrete Applied Mathematics 28, 1990), which is at
least the sum over the budget, rounded up, and at least the number of samples above half of it; and the size of sets of
samples of which no two go together, though each two clash over another resource.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def fewest_packs(loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]") -> int:
    """At least so many packs hold these loads, (samples, resources), none above its budget, (resources,)."""
    if not len(loads):
        return 0
    alone = [fewest_by_resource(loads[:, at], int(budget)) for at, budget in enumerate(budgets)]
    return max(1, *alone, largest_clash(loads, budgets))


def fewest_by_resource(sizes: "NDArray[np.int64]", budget: int) -> int:
    """L2: for a threshold k, samples above half of the budget have a pack each, and those between k and half of it
    fill what samples up to the budget less k leave.
    """
    import numpy as np

    rising = np.sort(sizes[sizes > 0])
    if not len(rising):
        return 0
    budget = min(budget, int(rising.sum()))  # more is of no use; products stay small
    sums = np.concatenate([[0], np.cumsum(rising)])
    half = int(np.searchsorted(2 * rising, budget, "right"))  # samples up to half of the budget
    starts = np.unique(np.searchsorted(rising, rising[:half], "left")) if half else np.array([0])
    thresholds = rising[starts] if half else np.array([1])
    fillable = np.maximum(half, np.searchsorted(rising, budget - thresholds, "right"))
    left = (fillable - half) * budget - (sums[fillable] - sums[half])
    over = np.maximum(0, sums[half] - sums[np.minimum(starts, half)] - left)
    return len(rising) - half + int((-(-over // budget)).max())


def largest_clash(loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]") -> int:
    """Samples of which no two fit into a pack: those above half of one budget, and those above half of another that
    clash with each of these.
    """
    large, best = 2 * loads > budgets, 0
    for first in range(len(budgets)):
        own = large[:, first]
        best = max(best, int(own.sum()))
        if not own.any():
            continue
        clashing = (loads + loads[own].min(axis=0) > budgets).any(axis=1) & ~own
        best = max(best, *(int(own.sum() + (clashing & large[:, other]).sum()) for other in range(len(budgets))))
    return best
