"""Seconds of passes that hold a share of their devices' compute, beside others that hold theirs.

With a share q of the SMs (or cores) a pass whose kernels take `compute` and `moved` seconds on a whole device, bound by
the one or the other, takes

    T(q) = (compute / q + moved / min(KAPPA·q, 1)) · (1 + GAMMA·max(0, Σ demanded − 1))

where each pass demands the share of the memory's bandwidth that it streams in the mean: a roofline kernel by kernel,
and contention of what runs beside it. What of this meets when is for the clock, which is not asked: of all others on
its ranks the most demanding count, as far as they fit beside it. So no order is priced too low.

Nobody measured this: both constants are analytic, and what they price has a wider spread.
"""

from collections.abc import Sequence
from typing import NamedTuple

# A share q of the SMs reaches KAPPA·q of the memory's bandwidth. An SM takes 64 bytes a clock from the L2 cache: 132 of
# an H200 could take 16.7 TB/s at 1.98 GHz, 3.5 times what its memory gives, 108 of an A100 4.8 times. What is under way
# at once leaves less of that: 2 is assumed.
KAPPA = 2.0
GAMMA = 1.0  # bandwidth is neither lost nor won: what is demanded beyond it takes so much longer
SPREAD = 0.2  # beside that of the same work on a whole device


class Use(NamedTuple):
    """What a pass takes of a device that it has a share of; seconds are those of a whole one."""

    share: float
    compute: float  # of kernels that are not bound by memory
    moved: float  # of kernels that are
    streamed: float | None = None  # of all bytes, at the memory's bandwidth; None: not known

    @property
    def whole(self) -> float:
        return self.compute + self.moved

    @property
    def alone(self) -> float:
        """Seconds with its share and nothing beside it."""
        return self.compute / self.share + self.moved / reach(self.share)

    @property
    def demanded(self) -> float:
        """Of the memory's bandwidth; where nobody knows, all that its share can reach."""
        most = reach(self.share)
        return most if self.streamed is None or not self.alone else min(most, self.streamed / self.alone)


def reach(share: float) -> float:
    """Of the memory's bandwidth, what this share of the SMs can use."""
    return min(KAPPA * share, 1.0)


def slower(own: Use, others: Sequence[Use]) -> float:
    """How many times as long as on whole devices it takes. `others`: of each that may run beside it one pass."""
    if not own.whole:
        return 1.0
    return own.alone / own.whole * (1.0 + GAMMA * max(0.0, own.demanded + beside(1.0 - own.share, others) - 1.0))


def beside(room: float, others: Sequence[Use]) -> float:
    """The most that others demand which fit into this share of a device; of the last of them, the part that fits."""
    demanded = 0.0
    for other in sorted(others, key=density, reverse=True):
        demanded += other.demanded * min(1.0, max(0.0, room) / other.share)
        room -= other.share
    return demanded


def density(use: Use) -> float:
    """Bandwidth demanded by a share of 1 of such passes."""
    return use.demanded / use.share
