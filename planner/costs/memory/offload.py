"""Activations in host memory while nothing needs them: how much of an item's can go there in no time of its own, and
how few ranks then hold it (ByteScale, arXiv 2502.21231).

An item of s tokens on d ranks leaves s/d of them to each. There a layer computes for T(s)/d in a pass, where
T(s) = α1·s² + α2·s is its time on one rank, and keeps A·s/d bytes. A share r of them leaves behind the next layer's
forward, and returns behind the backward of the layer above, if

    T(s)/d ≥ r·A·s / (d·B)        so that        r ≤ T(s)·B / (A·s) = (α1·s + α2)·B / A

for B bytes a second each way, in the faster pass. The number of ranks cancels: each has its own way to its host. What
helps besides is left out, so the rule errs on the safe side: exchanges, a pass's constant, and the items it is packed
with, each of which hides its own bytes. Of l layers the first and the last keep all that they have, so that a rank
holds (2 + (1 − r)·(l − 2))·A·s/d bytes, what the ends keep, and what backward makes again: k(r) times what it would
hold otherwise. Ranks with room for C tokens each then hold the item once d·C ≥ k(r)·s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import NamedTuple

from planner.costs.compute.lines import Line
from planner.costs.memory.caps import Held
from planner.specs.profile import Device
from planner.specs.shapes import resident_layers
from planner.units import GB

STEPS = 10_000  # ratios are whole parts of this many: few digits in a plan


class Placed(NamedTuple):
    """An item on the fewest ranks that hold it."""

    ranks: int
    offload: float  # the least ratio that suffices there


@dataclass(frozen=True, slots=True)
class Offloading:
    """Of a module's activations, on a rank that has some of its layers."""

    layers: int
    layer_bytes: float  # A: of a token, in one layer
    end_bytes: float  # of a token, outside the layers
    passes: tuple[tuple[float, float], ...]  # α1, α2 of one layer: seconds per token² and per token
    bytes_per_second: float  # B; 0: there is no way out
    remade_bytes: float = 0.0  # of a token, while backward makes a layer again

    def most(self, size: int) -> float:
        """The largest ratio that hides behind compute; 0 where no layer lies between the first and the last."""
        if self.layers <= 2 or not self.bytes_per_second:
            return 0.0
        if not self.layer_bytes:
            return 1.0
        seconds = min(squared * size + linear for squared, linear in self.passes)  # per token
        return floor(min(1.0, seconds * self.bytes_per_second / self.layer_bytes) * STEPS) / STEPS

    def held_bytes(self, ratio: float) -> float:
        """Of a token, on the device."""
        return resident_layers(self.layers, ratio) * self.layer_bytes + self.end_bytes

    def kept(self, ratio: float) -> float:
        """k: what an item's tokens hold at most, in tokens that nobody offloads; at most 1."""
        whole = self.held_bytes(0.0) + self.remade_bytes
        return (self.held_bytes(ratio) + self.remade_bytes) / whole if whole else 1.0

    def fewest(self, size: int, cap: int, allowed: Iterable[int]) -> Placed | None:
        """D(s): the fewest of the allowed numbers of ranks, of `cap` tokens each, that hold an item; None: none do."""
        most = self.most(size)
        enough = (ranks for ranks in sorted(allowed) if self.kept(most) * size <= ranks * cap)
        ranks = next(enough, None)
        return None if ranks is None else Placed(ranks, self.least(size, ranks * cap, most))

    def least(self, size: int, room: int, most: float) -> float:
        """The least ratio with which an item's tokens take no more than `room`, which `most` does."""
        if size <= room:
            return 0.0
        ratio = (1 - room / size) / (1 - self.kept(1.0))  # k falls in a straight line from 1
        return min(most, ceil(ratio * STEPS) / STEPS)


def offloading(passes: Sequence[Line], held: Held, layers: int, device: Device) -> Offloading:
    """For a rank of `device` that has `layers` layers. `passes`: of one layer on a rank alone, both ways; `held`:
    of one token, in all of its layers.
    """
    return Offloading(
        layers=layers,
        layer_bytes=held.layers / layers,
        end_bytes=held.ends,
        passes=tuple((line.quad, line.lin) for line in passes),
        bytes_per_second=(device.host_gb_per_s or 0.0) * GB,
        remade_bytes=held.besides,
    )
