"""Seconds of passes that run on a share of their devices' compute, next to concurrent passes on the rest.

With a share q of the SMs (or cores), a pass whose kernels take `compute` seconds (bound by compute) and `memory_bound`
seconds (bound by memory) on a whole device takes

    D(q) = (compute / q + memory_bound / min(κ·q, 1)) · (1 + γ·max(0, Σ demanded − 1))

where each pass demands the share of memory bandwidth that it streams in the mean: a roofline kernel by kernel, and
contention with concurrent passes. It takes no less than its host launches it in, which a share makes no slower. Which
passes really coincide only the simulated clock knows, and it is not asked: of all passes on the same ranks the most
demanding count, as far as they fit on the device. So no order is priced too low. What one thread launches for several
modules queues in that clock (simulate/engine.py).

κ and γ are as timed (`planner profile --shares`), with the error of pairs that were not fitted; else they are assumed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from planner.costs.cost_lines import LaunchTerm, smooth_max
from planner.specs.hardware.profile import DeviceShares

# A share q of the SMs reaches kappa·q of the memory's bandwidth. An SM takes 64 bytes a clock from the L2 cache: 132 of
# an H200 could take 16.7 TB/s at 1.98 GHz, 3.5 times what its memory gives, 108 of an A100 4.8 times. The limit of
# requests in flight leaves less of that: 2 is assumed. Demand beyond the bandwidth takes longer in proportion (gamma).
ASSUMED_SHARES = DeviceShares(source="analytic", kappa=2.0, gamma=1.0)


class DeviceUse(NamedTuple):
    """What a pass takes of a device that it has a share of; seconds are those on a whole device."""

    share: float
    compute: float  # seconds of kernels that are bound by compute
    memory_bound: float  # seconds of kernels that are bound by memory
    streamed: float | None = None  # seconds of moving all bytes at memory bandwidth; None: not known
    shares: DeviceShares = ASSUMED_SHARES  # of the device
    launches: tuple[LaunchTerm, ...] = ()  # that the device may wait for, which is not among its seconds

    @property
    def device_seconds(self) -> float:
        """Seconds on a whole device."""
        return self.compute + self.memory_bound

    @property
    def share_seconds(self) -> float:
        """Seconds on its share of the device with nothing concurrent."""
        return self.compute / self.share + self.memory_bound / self.reachable_bandwidth

    @property
    def bandwidth_share(self) -> float:
        """The share of memory bandwidth that the pass demands; where its traffic is not known, all that its SMs can
        use.
        """
        if self.streamed is None or not self.share_seconds:
            return self.reachable_bandwidth
        return min(self.reachable_bandwidth, self.streamed / self.share_seconds)

    @property
    def reachable_bandwidth(self) -> float:
        """The share of memory bandwidth that this share of the SMs can use."""
        return min(self.shares.kappa * self.share, 1.0)

    def seconds(self, others: Sequence["DeviceUse"], lengths: Sequence[int]) -> float:
        """Seconds beside others of a pass over documents of these lengths, waits for launches included."""
        slower = slowdown(self, others)
        waits = 0.0
        for times, layer, host in self.launches:
            device = layer.seconds(lengths) * slower
            waits += times * (float(smooth_max(device, host)) - device)
        return self.device_seconds * slower + waits


def slowdown(own: DeviceUse, others: Sequence[DeviceUse]) -> float:
    """The slowdown against whole devices. `others`: one pass each of those that may run concurrently."""
    if not own.device_seconds:
        return 1.0
    return (
        own.share_seconds
        / own.device_seconds
        * (1.0 + own.shares.gamma * max(0.0, own.bandwidth_share + concurrent_demand(1.0 - own.share, others) - 1.0))
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
