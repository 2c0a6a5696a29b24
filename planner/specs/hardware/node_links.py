"""Links within a node: their generation, and the latency of a hop, with its source.

Bandwidths are in device files; latencies are not, since a profile that `planner profile` measured has its own.
"""

from typing import NamedTuple

ASSUMED_NODE_US = 10.0  # latency of a hop where nobody measured the device's links: that of the slowest measured ones
ASSUMED_NETWORK_US = 15.0  # latency of a hop between nodes, as in the shipped clusters: nobody measured it


class NodeLink(NamedTuple):
    """The links that join devices of a node. `latency_us`: of a hop; None: nobody measured it."""

    generation: str
    latency_us: float | None = None
    source: str = ""


ON_H100 = "the smallest all-to-all of NCCL 2.29 on two H100 (ai-dynamo/aiconfigurator)"
ON_H200 = "the smallest all-to-all of NCCL 2.29 on two H200 (ai-dynamo/aiconfigurator)"
ON_A100 = "the smallest all-to-all of NCCL 2.27 on two A100 (ai-dynamo/aiconfigurator)"

LINKS: dict[str, NodeLink] = {  # by device
    "a30": NodeLink("PCIe Gen4"),
    "a6000": NodeLink("PCIe Gen4"),
    "a100-40gb": NodeLink("NVLink 3", 10.0, ON_A100),
    "a100-80gb": NodeLink("NVLink 3", 10.0, ON_A100),
    "a800": NodeLink("NVLink 3"),
    "b200": NodeLink("NVLink 5"),
    "b300": NodeLink("NVLink 5"),
    "gb200": NodeLink("NVLink 5"),
    "gb300": NodeLink("NVLink 5"),
    "h100-80gb": NodeLink("NVLink 4", 6.5, ON_H100),
    "nvl-h100-94gb": NodeLink("PCIe Gen5"),
    "pcie-h100-80gb": NodeLink("PCIe Gen5"),
    "h20": NodeLink("NVLink 4"),
    "h200": NodeLink("NVLink 4", 6.5, ON_H200),
    "h800": NodeLink("NVLink 4"),
    "l40s": NodeLink("PCIe Gen4"),
    "mi300x": NodeLink("Infinity Fabric"),
    "mi325x": NodeLink("Infinity Fabric"),
    "mi355x": NodeLink("Infinity Fabric"),
    "rtx-4090": NodeLink("PCIe Gen4"),
    "torchtitan-h100-500w": NodeLink("NVLink 4"),
    "v100-16gb": NodeLink("NVLink 2"),
    "v100-32gb": NodeLink("NVLink 2"),
}


def link_of(device: str) -> NodeLink:
    """Return the links of a device; those of one that is not shipped have no name and no measured latency."""
    return LINKS.get(device, NodeLink("links"))
