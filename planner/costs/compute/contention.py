"""Seconds of passes that run on a share of their devices' compute, next to concurrent passes on the rest.

With a share q of the SMs (or cores), a pass whose kernels take `compute` seconds (bound by compute) and `memory_bound`
seconds (bound by memory) on a whole device takes

    T(q) = (compute / q + memory_bound / min(KAPPA·q, 1)) · (1 + GAMMA·max(0, Σ demanded − 1))

where each pass demands the share of memory bandwidth that it streams in the mean: a roofline kernel by kernel, and
contention with concurrent passes. Which passes really coincide only the simulated clock knows, and it is not asked: of
all passes on the same ranks the most demanding count, as far as they fit on the device. So no order is priced too low.

Both constants are analytic, not measured; what they price has a wider spread.
"""

from collections.abc import Sequence
from typing import NamedTuple

# A share q of the SMs reaches KAPPA·q of the memory's bandwidth. An SM takes 64 bytes a clock from the L2 cache: 132 of
# an H200 could take 16.7 TB/s at 1.98 GHz, 3.5 times what its memory gives, 108 of an A100 4.8 times. The limit of
# requests in flight leaves less of that: 2 is assumed.
KAPPA = 2.0
GAMMA = 1.0  # demand beyond the bandwidth takes longer in proportion; none of it is lost
CONTENTION_SPREAD = 0.2  # added to that of the same work on a whole device


class DeviceUse(NamedTuple):
    """What a pass takes of a device that it has a share of; seconds are those on a whole device."""

    share: float
    compute: float  # seconds of kernels that are bound by compute
    memory_bound: float  # seconds of kernels that are bound by memory
    streamed: float | None = None  # seconds of moving all bytes at memory bandwidth; None: not known

    @property
    def device_seconds(self) -> float:
        """Seconds on a whole device."""
        return self.compute + self.memory_bound

    @property
    def share_seconds(self) -> float:
        """Seconds on its share of the device with nothing concurrent."""
        return self.compute / self.share + self.memory_bound / reachable_bandwidth(self.share)

    @property
    def bandwidth_share(self) -> float:
        """The share of memory bandwidth that the pass demands; where its traffic is not known, all that its SMs can
        use.
        """
        limit = reachable_bandwidth(self.share)
        return (
            limit if self.streamed is None or not self.share_seconds else min(limit, self.streamed / self.share_seconds)
        )


def reachable_bandwidth(share: float) -> float:
    """The share of memory bandwidth that this share of the SMs can use."""
    return min(KAPPA * share, 1.0)


def slowdown(own: DeviceUse, others: Sequence[DeviceUse]) -> float:
    """The slowdown against whole devices. `others`: one pass each of those that may run concurrently."""
    if not own.device_seconds:
        return 1.0
    return (
        own.share_seconds
        / own.device_seconds
        * (1.0 + GAMMA * max(0.0, own.bandwidth_share + concurrent_demand(1.0 - own.share, others) - 1.0))
    )


def concurrent_demand(room: float, others: Sequence[DeviceUse]) -> float:
    """The most memory bandwidth that passes demand which fit into `room`, a share of a device; the last one may fit in
    part.
    """
    demanded = 0.0
    for other in sorted(others, key=demand_density, reverse=True):
        demanded += other.bandwidth_share * min(1.0, max(0.0, room) / other.share)
        room -= other.share
    return demanded


def demand_density(use: DeviceUse) -> float:
    """Memory bandwidth demanded per share of the device."""
    return use.bandwidth_share / use.share
