"""Seconds of one group in one micro-batch as a function of its items: quad·Σs² + lin·Σs + const, and the exposed part
of ring attention's communication. A price is such seconds with their source and their uncertainty.

Every strategy that groups sequences optimises these cost lines, and the simulator prices forwards and backwards with
the same ones, so that what was optimised is what is predicted (FlexSP's cost model, arXiv 2412.01523, section 4).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.specs.base import Source


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one piece of work."""

    value: float  # seconds
    source: Source
    spread: float  # half-width of the 80 % interval over the value
    comm: float = 0.0  # seconds of `value` that are exposed communication
    host: float = 0.0  # seconds in which a thread of the host launches it that launches for other modules too


NO_COST = Cost(0.0, "measured", 0.0)


def least_trusted(sources: list[Source]) -> Source:
    """The least trustworthy of several sources: a sum is only as good as its worst term."""
    order: list[Source] = ["measured", "fitted", "published", "analytic"]
    return max(sources, key=order.index, default="measured")


def total_cost(*costs: Cost) -> Cost:
    """The cost of several pieces of work one after another; their spreads add up as if their errors were fully
    correlated.
    """
    seconds = sum(cost.value for cost in costs)
    spread = sum(cost.value * cost.spread for cost in costs) / seconds if seconds else 0.0
    sources = [cost.source for cost in costs if cost.value > 0]
    return Cost(seconds, least_trusted(sources), spread, sum(cost.comm for cost in costs))


def slowest_cost(costs: Iterable[Cost]) -> Cost:
    """The cost of the slowest of several ranks that wait for each other."""
    return max(costs, key=lambda cost: cost.value)


class RingTerm(NamedTuple):
    """Key/value blocks that travel around a ring while its ranks compute attention on those they have."""

    send_seconds: float  # seconds of sending per token of an item, beyond what attention's linear part hides
    attention_seconds: float  # seconds of attention per token² of the item, which hide as much of the sending

    def exposed(self, size: int) -> float:
        """Seconds by which sending outlasts attention, for an item of `size` tokens."""
        return max(0.0, self.send_seconds * size - self.attention_seconds * size * size)


class WindowTerm(NamedTuple):
    """Attention within a sliding window."""

    seconds: float  # per pair of tokens
    fill: float  # a kernel's work per query beside its pairs, in tokens
    window: int
    causal: bool

    def item_seconds(self, size: float) -> float:
        """Seconds for an item of `size` tokens."""
        width = min(size, self.window)
        pairs = width * (size - width / 2.0 if self.causal else size)
        return self.seconds * pairs * (1.0 + self.fill / size)


class LaunchTerm(NamedTuple):
    """Passes over layers that the host must launch: no layer finishes before its launches."""

    times: float  # layers
    layer: "CostLine"  # seconds of one layer on the device
    host: float  # seconds of launching one layer

    def wait_seconds(self, sizes: Sequence[int]) -> float:
        """Seconds added to the device's own. A smooth maximum, as each side waits for the other now and then."""
        device = self.layer.seconds(sizes)
        return self.times * (float(smooth_max(device, self.host)) - device)


@dataclass(frozen=True, slots=True)
class CostLine:
    """Seconds over packed items of s tokens each; `comm_*` is the part spent in communication.

    `quad` includes the attention that hides `rings`, so that attention and ring of an item take max(quad·s², moved·s).
    """

    quad: float = 0.0
    lin: float = 0.0
    const: float = 0.0
    comm_lin: float = 0.0
    comm_const: float = 0.0
    rings: tuple[RingTerm, ...] = ()  # one for each pass
    windows: tuple[WindowTerm, ...] = ()
    launches: tuple[LaunchTerm, ...] = ()

    def seconds(self, sizes: Sequence[int]) -> float:
        """Seconds of all items together, packed."""
        const = self.const + sum(launch.wait_seconds(sizes) for launch in self.launches)
        squares = float(sum(size * size for size in sizes))
        return (
            self.quad * squares + self.lin * sum(sizes) + const + self.exposed_ring(sizes) + self.window_seconds(sizes)
        )

    def item_seconds(self, size: int) -> float:
        """Seconds that one item adds, without the constant and without waits for launches: a lower bound of what it
        adds.
        """
        compute = self.quad * size * size + self.lin * size
        return (
            compute + self.exposed_ring((size,)) + self.window_seconds((size,))
            if self.rings or self.windows
            else compute
        )

    def item_parts(self, size: int) -> tuple[float, ...]:
        """What one item adds to the sums that `packed_seconds` takes: seconds, and of each launch term the layer's."""
        return self.item_seconds(size), *(launch.layer.item_seconds(size) for launch in self.launches)

    def packed_seconds(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """`seconds` of many packs at once, (…,), of the sums of their items' parts, (…, parts); none of no items."""
        seconds = parts[..., 0] + self.const
        for number, (times, layer, host) in enumerate(self.launches, 1):
            device = parts[..., number] + layer.const
            seconds = seconds + times * (smooth_max(device, host) - device)
        return np.where(parts.any(axis=-1), seconds, 0.0)

    @property
    def host_seconds(self) -> float:
        """Seconds in which the host launches it."""
        return sum(launch.times * launch.host for launch in self.launches)

    def comm_seconds(self, sizes: Sequence[int]) -> float:
        """Seconds of `seconds` that are exposed communication."""
        return self.comm_lin * sum(sizes) + self.comm_const + self.exposed_ring(sizes)

    def exposed_ring(self, sizes: Sequence[int]) -> float:
        """Exposed seconds of ring attention's sends."""
        return sum((ring.exposed(size) for ring in self.rings for size in sizes), 0.0)

    def window_seconds(self, sizes: Sequence[int]) -> float:
        """Seconds of attention within windows."""
        return sum((each.item_seconds(size) for each in self.windows for size in sizes), 0.0)

    def __add__(self, other: "CostLine") -> "CostLine":
        return CostLine(
            self.quad + other.quad,
            self.lin + other.lin,
            self.const + other.const,
            self.comm_lin + other.comm_lin,
            self.comm_const + other.comm_const,
            self.rings + other.rings,
            self.windows + other.windows,
            self.launches + other.launches,
        )

    def __mul__(self, times: float) -> "CostLine":
        return CostLine(
            self.quad * times,
            self.lin * times,
            self.const * times,
            self.comm_lin * times,
            self.comm_const * times,
            tuple(RingTerm(ring.send_seconds * times, ring.attention_seconds * times) for ring in self.rings),
            tuple(each._replace(seconds=each.seconds * times) for each in self.windows),
            tuple(each._replace(times=each.times * times) for each in self.launches),
        )


def smooth_max(one: Any, other: Any) -> Any:
    """A smooth maximum of two times: the 4-norm, 2^¼ − 1 above the larger where they are equal. Broadcasts."""
    first, second = one * one, other * other
    return np.sqrt(np.sqrt(first * first + second * second))  # powers of arrays are slow
