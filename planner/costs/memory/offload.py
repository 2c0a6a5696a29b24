"""Offloading activations to host memory: how much of an item's hides behind compute, and how few ranks then hold the
item (ByteScale, arXiv 2502.21231).

An item of s tokens on d ranks leaves s/d of them to each. There a layer computes for T(s)/d in a pass, where T(s) =
α1·s² + α2·s is its time on one rank, and keeps A·s/d bytes. A share r of them is copied out during the next layer's
forward, and back during the backward of the layer above, if

    T(s)/d ≥ r·A·s / (d·B)        so that        r ≤ T(s)·B / (A·s) = (α1·s + α2)·B / A

for B bytes a second in each direction, in the faster pass. The number of ranks cancels: each has its own link to its
host. The rule is conservative; it leaves out what helps besides: communication, a pass's constant, and the items in the
same micro-batch, each of which hides its own bytes. Of l layers the first and the last keep all that they have, so that
a rank holds (2 + (1 − r)·(l − 2))·A·s/d bytes (and r·e·s/d more where the two recompute otherwise than the mean layer,
and keep e bytes more than 2·A), what embedding and head keep, and what backward recomputes: k(r) times
what it would hold otherwise. Ranks with room for C tokens each then hold the item once d·C ≥ k(r)·s. Where
a layout names kinds of activations, r is a share of those alone, A is theirs in the rule, and the rest stays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.costs.cost_lines import CostLine
from planner.costs.memory.token_caps import ActivationBytes
from planner.specs.hardware.profile import Device
from planner.specs.shapes import resident_layers
from planner.units import GB

STEPS = 10_000  # ratios are multiples of 1/STEPS: few digits in a plan


@dataclass(frozen=True, slots=True)
class Offloading:
    """Offloading of a module's activations, on a rank that has some of its layers."""

    layers: int
    layer_bytes: float  # A: per token of one layer
    head_bytes: float  # per token, outside the layers
    passes: tuple[tuple[float, float], ...]  # α1, α2 of one layer: seconds per token² and per token
    bytes_per_second: float  # B; 0: the device has no link to its host
    recomputed_bytes: float = 0.0  # per token, while backward recomputes a layer
    named_bytes: float | None = None  # of A, what the layout names to be offloaded; None: all of it
    ends_beyond: float = 0.0  # per token, of this in the first layer and the last beyond twice the mean's

    @property
    def offloadable_bytes(self) -> float:
        """Bytes per token of one layer that can be offloaded."""
        return self.layer_bytes if self.named_bytes is None else self.named_bytes

    def largest_ratio(self, size: int) -> float:
        """The largest ratio that hides behind compute; 0 where no layer is between the first and the last."""
        if self.layers <= 2 or not self.bytes_per_second:
            return 0.0
        if not self.offloadable_bytes:
            return 1.0
        seconds = min(squared * size + linear for squared, linear in self.passes)  # per token
        return math.floor(min(1.0, seconds * self.bytes_per_second / self.offloadable_bytes) * STEPS) / STEPS

    def held_bytes(self, ratio: float) -> float:
        """Bytes per token on the device."""
        return self.held_layer_bytes(ratio) + self.head_bytes

    def held_layer_bytes(self, ratio: float) -> float:
        """Bytes per token that layers hold on the device."""
        moved = self.offloadable_bytes
        rest = self.layers * (self.layer_bytes - moved)
        return rest + resident_layers(self.layers, ratio) * moved + ratio * self.ends_beyond

    def kept_share(self, ratio: float) -> float:
        """The share k: what a token holds on the device, over what it holds without offload; at most 1."""
        whole = self.held_bytes(0.0) + self.recomputed_bytes
        return (self.held_bytes(ratio) + self.recomputed_bytes) / whole if whole else 1.0

    def least_ratio(self, size: int, room: int, most: float) -> float:
        """The least ratio with which an item's tokens fit into `room`; `most` is known to suffice."""
        if size <= room:
            return 0.0
        ratio = (1 - room / size) / (1 - self.kept_share(1.0))  # k falls in a straight line from 1
        return min(most, math.ceil(ratio * STEPS) / STEPS)


def offloading_of(
    passes: Sequence[CostLine],
    held: ActivationBytes,
    layers: int,
    device: Device,
    ends: float | None = None,
    named: float | None = None,
) -> Offloading:
    """The offloading of a rank of `device` that has `layers` layers. `passes`: cost lines of one layer on one rank,
    forward and backward; `held`: bytes of one token, in all of its layers; `named`: of these, what its layout names to
    be offloaded, None for all; `ends`: in the first and the last of them, where these have other than the mean.
    """
    offloadable = held.layers if named is None else named
    return Offloading(
        layers=layers,
        layer_bytes=held.layers / layers,
        head_bytes=held.head,
        passes=tuple((line.quad, line.lin) for line in passes),
        bytes_per_second=(device.host_gb_per_s or 0.0) * GB,
        recomputed_bytes=held.recompute_extra,
        named_bytes=None if named is None else named / layers,
        ends_beyond=0.0 if ends is None else ends - 2.0 * offloadable / layers,
    )
