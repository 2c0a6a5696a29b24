"""Seconds of a frozen encoder whose outputs are kept, in the mean of all epochs.

The first of E epochs computes and writes, the others read; writing takes as long as reading, so that a forward over s
tokens takes

    compute(s) / E + bytes(s) / bandwidth

in the mean. Host memory is reached at the device's own rate (on CPUs, whose memory it is, at that of memory), a disk at
an equal part of its node's rate for each rank of the encoder there, and behind the way to the host.
"""

from collections import Counter

from planner.costs.cost_lines import CostLine
from planner.plan.node_storage import storage_of
from planner.plan.plan_file import Layout
from planner.specs.hardware.cluster import Cluster, node_of_rank
from planner.specs.hardware.profile import Device
from planner.specs.layers import Module
from planner.specs.shapes import token_output_bytes
from planner.units import GB


def host_gb_per_s(device: Device) -> float | None:
    """GB/s to the host's memory and back; None where the device does not state it."""
    return device.memory_gb_per_s if device.kind == "cpu" else device.host_gb_per_s


def feature_gb_per_s(layout: Layout, cluster: Cluster, device: Device) -> float:
    """GB/s at which a rank of an encoder reads or writes features that are kept."""
    host = host_gb_per_s(device) or float("inf")  # that a plan needs one is a law of plans
    if layout.features == "host":
        return host
    sharing = max(Counter(node_of_rank(cluster, rank) for rank in layout.ranks).values())
    return min(host, storage_of(cluster).disk_gb_per_s / sharing)


def kept_feature_line(computed: CostLine, module: Module, layout: Layout, share: float, gb_per_s: float) -> CostLine:
    """The cost line of a forward in the mean of all epochs; `share`: of epochs that compute it."""
    return computed * share + CostLine(lin=token_output_bytes(module, layout.dtype) / (gb_per_s * GB))
