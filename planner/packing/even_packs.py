"""A given number of packs with even loads: the seconds of every module are to be alike in all of them.

Samples go, largest first, to the pack with room whose seconds are least like theirs: the smallest product of both,
module by module, each over its mean. That is the pack by which the squares of all loads grow least, and for one module
the least loaded one (LPT, Graham 1969). Then samples of the fullest pack are moved, or exchanged with others, as long
as the squares become less.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXCHANGES = 2  # per pack, on average
FEW = 5_000  # samples up to which exchanges are tried: each looks at all of them
LEAST = 1e-9  # by which squares must fall


def even_packs(
    loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]", seconds: "NDArray[np.float64]", count: int
) -> "NDArray[np.int64] | None":
    """The pack of each sample, (samples,), of `count`; None where a sample finds no room. `seconds`: (samples,
    modules).
    """
    import numpy as np

    shares = mean_shares(seconds, count)
    order = np.lexsort((*loads.T, -shares.sum(axis=1), -shares.max(axis=1)))
    rooms, filled = np.tile(budgets, (count, 1)), np.zeros((count, shares.shape[1]))
    found = np.zeros(len(loads), dtype=np.int64)
    for sample in order.tolist():
        able = (rooms >= loads[sample]).all(axis=1)
        alike = (filled * shares[sample]).sum(axis=1) + 1e-9 * filled.sum(axis=1)
        pack = int(np.where(able, alike, np.inf).argmin())
        if not able[pack]:
            return None
        rooms[pack] -= loads[sample]
        filled[pack] += shares[sample]
        found[sample] = pack
    return found


def mean_shares(seconds: "NDArray[np.float64]", count: int) -> "NDArray[np.float64]":
    """Seconds of each module over its mean in `count` packs; zeros where it has none."""
    import numpy as np

    means = seconds.sum(axis=0) / count
    return np.asarray(np.divide(seconds, means, out=np.zeros_like(seconds), where=means > 0))


class PackedLoads:
    """Packs whose samples are exchanged within the budgets, until the fullest cannot give any away to good effect."""

    def __init__(
        self, packs: "NDArray[np.int64]", loads: "NDArray[np.int64]", seconds: "NDArray[np.float64]", count: int
    ) -> None:
        import numpy as np

        self.packs, self.count = packs.copy(), count
        none = np.zeros((count, loads.shape[1]), dtype=np.int64)
        self.loads, self.used = np.concatenate([loads, none]), none.copy()  # nothing of each pack: moves are exchanges
        self.shares = np.concatenate([mean_shares(seconds, count), np.zeros((count, seconds.shape[1]))])
        self.filled = np.zeros((count, seconds.shape[1]))
        self.every = np.concatenate([self.packs, np.arange(count)])
        np.add.at(self.used, self.packs, loads)
        np.add.at(self.filled, self.packs, self.shares[: len(loads)])

    def level(self, budgets: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """The pack of each sample after exchanges, (samples,): the squares of all loads are at most what they were."""
        samples = len(self.packs)
        if samples <= FEW and self.count > 1:
            for _ in range(EXCHANGES * self.count):
                full = int(self.filled.max(axis=1).argmax())
                gain, sample, other = min(
                    (self.best_partner(int(each), budgets) for each in (self.every[:samples] == full).nonzero()[0]),
                    default=(0.0, 0, 0),
                )
                if gain > -LEAST:
                    break
                self.exchange(sample, other)
        return self.every[:samples]

    def best_partner(self, sample: int, budgets: "NDArray[np.int64]") -> tuple[float, int, int]:
        """The best exchange of a sample: by how much squares grow, the sample, and what it is exchanged with."""
        import numpy as np

        own, moved = self.every[sample], self.loads[sample] - self.loads
        given = self.shares[sample] - self.shares
        able = (self.used[self.every] + moved <= budgets).all(axis=1) & (self.used[own] - moved <= budgets).all(axis=1)
        growth = (given * (self.filled[self.every] - self.filled[own] + given)).sum(axis=1)
        growth = np.where(able & (self.every != own), growth, 0.0)
        other = int(growth.argmin())
        return float(growth[other]), sample, other

    def exchange(self, sample: int, other: int) -> None:
        """Exchange two samples of different packs; the other may be nothing."""
        source, target = int(self.every[sample]), int(self.every[other])
        moved, given = self.loads[sample] - self.loads[other], self.shares[sample] - self.shares[other]
        self.used[source] -= moved
        self.used[target] += moved
        self.filled[source] -= given
        self.filled[target] += given
        self.every[sample] = target
        if other < len(self.packs):
            self.every[other] = source
