"""Seconds of one group in one micro-batch, as a line over its items: quad·Σs² + lin·Σs + const, and what no attention
hides of a ring's blocks.

Every strategy that groups sequences works on these lines, and the simulator prices F and B tasks with the same ones, so
that what was optimised is what is predicted (FlexSP's cost model, arXiv 2412.01523, section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Ring(NamedTuple):
    """Key/value blocks that travel from rank to rank while these compute attention on what they have."""

    moved: float  # seconds of sending, per token of an item, over what attention's linear part hides
    hidden: float  # seconds of attention, per token² of the item: as much of the sending takes no time of its own

    def exposed(self, size: int) -> float:
        """Seconds by which sending outlasts attention."""
        return max(0.0, self.moved * size - self.hidden * size * size)


class Windowed(NamedTuple):
    """Attention that sees so many tokens."""

    seconds: float  # per pair of tokens
    fill: float  # tokens that stand for what a kernel does once for each row, over the item's own
    window: int
    causal: bool

    def of(self, size: int) -> float:
        seen = min(size, self.window)
        pairs = seen * (size - seen / 2.0 if self.causal else size)
        return self.seconds * pairs * (1.0 + self.fill / size)


class Launched(NamedTuple):
    """Passes over layers that the host has to launch: no layer is done sooner than that."""

    times: float
    layer: "Line"  # of one of them, on the device
    host: float  # seconds

    def waits(self, sizes: Sequence[int]) -> float:
        """Seconds beyond the device's own. A maximum with a round corner: each waits for the other now and then."""
        device = self.layer.seconds(sizes)
        return self.times * (float(rounded_max(device, self.host)) - device)


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds over packed items of s tokens each; `comm_*` is the part spent in exchanges.

    `quad` holds the attention that hides `rings`, so that an item's attention and ring take max(quad·s², moved·s).
    """

    quad: float = 0.0
    lin: float = 0.0
    const: float = 0.0
    comm_lin: float = 0.0
    comm_const: float = 0.0
    rings: tuple[Ring, ...] = ()  # of each pass
    windows: tuple[Windowed, ...] = ()
    launches: tuple[Launched, ...] = ()

    def seconds(self, sizes: Sequence[int]) -> float:
        """All items together, packed."""
        own = self.const + sum(launch.waits(sizes) for launch in self.launches)
        squares = float(sum(size * size for size in sizes))
        return self.quad * squares + self.lin * sum(sizes) + own + self.exposed(sizes) + self.seen(sizes)

    def of(self, size: int) -> float:
        """One item alone, without what a pass takes however little is in it; no more than it adds to others."""
        computed = self.quad * size * size + self.lin * size
        return computed + self.exposed((size,)) + self.seen((size,)) if self.rings or self.windows else computed

    def comm(self, sizes: Sequence[int]) -> float:
        """The part of `seconds` in which ranks wait for each other's data."""
        return self.comm_lin * sum(sizes) + self.comm_const + self.exposed(sizes)

    def exposed(self, sizes: Sequence[int]) -> float:
        return sum((ring.exposed(size) for ring in self.rings for size in sizes), 0.0)

    def seen(self, sizes: Sequence[int]) -> float:
        return sum((each.of(size) for each in self.windows for size in sizes), 0.0)

    def __add__(self, other: "Line") -> "Line":
        return Line(
            self.quad + other.quad,
            self.lin + other.lin,
            self.const + other.const,
            self.comm_lin + other.comm_lin,
            self.comm_const + other.comm_const,
            self.rings + other.rings,
            self.windows + other.windows,
            self.launches + other.launches,
        )

    def __mul__(self, times: float) -> "Line":
        return Line(
            self.quad * times,
            self.lin * times,
            self.const * times,
            self.comm_lin * times,
            self.comm_const * times,
            tuple(Ring(ring.moved * times, ring.hidden * times) for ring in self.rings),
            tuple(each._replace(seconds=each.seconds * times) for each in self.windows),
            tuple(each._replace(times=each.times * times) for each in self.launches),
        )


def rounded_max(one: Any, other: Any) -> Any:
    """The larger of two times, with a round corner: 2^¼ − 1 above it where they are equal. Broadcasts."""
    first, second = one * one, other * other
    return np.sqrt(np.sqrt(first * first + second * second))  # powers of arrays are slow
