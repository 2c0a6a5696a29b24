"""Seconds of collectives between equal ranks, from few facts of the network, for groups given by size and stride.

A group of `size` ranks with `stride` between neighbours lies within a node, or crosses nodes. A ring through nodes
leaves each by one adapter and enters by another, and as many rings run at once as the group has members in a node, so
that a wide group of neighbours has more of the network than one rank's own adapter.
"""

from dataclasses import dataclass

import numpy as np

from planner.costs.static.setup import Number
from planner.units import GB, US


@dataclass(frozen=True, slots=True)
class Wires:
    """Bandwidths are one way, per rank, as collectives reach them."""

    per_node: int
    near_gb_per_s: float  # within a node
    far_gb_per_s: float  # between nodes
    near_us: float  # latency of one hop
    far_us: float

    def crosses(self, size: Number, stride: Number) -> Number:
        """Whether a group reaches beyond one node."""
        return np.asarray(size * stride > self.per_node)

    def ring(self, size: Number, stride: Number) -> Number:
        """Bytes per second of rings through a group."""
        members = np.maximum(1.0, self.per_node / stride)
        far = np.minimum(self.near_gb_per_s, self.far_gb_per_s * members)
        return np.where(self.crosses(size, stride), far, self.near_gb_per_s) * GB

    def latency(self, size: Number, stride: Number) -> Number:
        """Of one collective: hops of a ring within a node, of a tree between nodes."""
        nodes = np.maximum(1.0, size * stride / self.per_node)
        within = np.minimum(size, np.maximum(1.0, self.per_node / stride))
        return (self.near_us * (within - 1.0) + 2.0 * self.far_us * np.log2(nodes)) * US

    def gather(self, size_bytes: Number, size: Number, stride: Number, calls: Number = 1.0) -> Number:
        """An all-gather into, or a reduce-scatter of, buffers of `size_bytes` in all, in `calls` calls."""
        moved = size_bytes * (size - 1.0) / size / self.ring(size, stride)
        return np.where(size > 1, moved + calls * self.latency(size, stride), 0.0)

    def all_reduce(self, size_bytes: Number, size: Number, stride: Number, calls: Number = 1.0) -> Number:
        return 2.0 * self.gather(size_bytes, size, stride, calls)

    def all_to_all(self, size_bytes: Number, size: Number, stride: Number, far: Number = 1.0) -> Number:
        """Each rank sends `size_bytes` in all, equally to each rank of its group; what leaves a node takes its adapter.

        `far`: the share of what would leave a node that does.
        """
        near = np.minimum(size, np.maximum(1.0, self.per_node / stride))  # members in a node, this rank among them
        inside = size_bytes * (near - 1.0) / size / (self.near_gb_per_s * GB)
        outside = far * size_bytes * (size - near) / size / (self.far_gb_per_s * GB)
        return np.where(size > 1, np.maximum(inside, outside) + self.latency(size, stride), 0.0)

    def p2p(self, size_bytes: Number, stride: Number, calls: Number = 1.0) -> Number:
        """To the rank at `stride`."""
        far = self.crosses(2, stride)
        speed = np.where(far, self.far_gb_per_s, self.near_gb_per_s) * GB
        return size_bytes / speed + calls * np.where(far, self.far_us, self.near_us) * US


NONE = Wires(per_node=1, near_gb_per_s=1.0, far_gb_per_s=1.0, near_us=0.0, far_us=0.0)  # of a rank alone
