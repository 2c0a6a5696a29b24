"""Clusters by what people know: `nodes: 8`, `gpus: 8xh100`, `nics: 8x400Gb`, expanded to ranks and levels.

Bandwidths within a node are in device files; the generation of its links and the latency of a hop are here, since a
profile that `planner profile` measured has its own.
"""

import re
from typing import Any, ClassVar, NamedTuple

from planner.specs.base import MAX_RANKS, Amount, RankCount, Spec
from planner.specs.hardware.cluster import Cluster, Level, NodeStorage, RankKind
from planner.specs.hardware.profile import Device

GPUS = re.compile(r"([1-9]\d{0,5})\s*[x×*]\s*(\S.*)", re.ASCII)
ADAPTERS = re.compile(r"(?:([1-9]\d{0,3})\s*[x×*]\s*)?(\d{1,6}(?:\.\d{1,6})?)\s*([GT])i?(b|B)(?:ps|it/s|/s)?", re.ASCII)
GIGA = {"G": 1.0, "T": 1000.0}
BYTES = {"b": 0.125, "B": 1.0}  # of the unit
SHOWN = 40  # characters of a text that a message quotes


class NodePart(str):
    """A text in a file that is parsed when it is read."""

    __slots__ = ()

    def to_file(self) -> str:
        return str(self)


class NodeGpus(NodePart):
    """How many GPUs of which device: a file of profiles/devices, the beginning of its name, or a path."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "NodeGpus":
        if not isinstance(value, str) or not GPUS.fullmatch(value.strip()):
            raise ValueError(f"`{str(value)[:SHOWN]}` is no number of GPUs of a device | write it like 8xh100")
        return cls(value.strip())

    @property
    def number(self) -> int:
        """How many there are in a node."""
        return int(re.split("[x×*]", self)[0])

    @property
    def device(self) -> str:
        """The name of the device, or the path of its file."""
        named = re.split("[x×*]", self, maxsplit=1)[1].strip()
        return named if "/" in named else named.lower()

    @staticmethod
    def schema() -> dict[str, Any]:
        return {"type": "string", "description": "GPUs of a node, and their device", "examples": ["8xh100"]}


class NodeAdapters(NodePart):
    """The network adapters of a node with their rate; `b` is bits, `B` bytes."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "NodeAdapters":
        if not isinstance(value, str) or not adapters_gb_per_s(value):
            raise ValueError(f"`{str(value)[:SHOWN]}` is no rate of adapters | write it like 8x400Gb")
        return cls(value.strip())

    @property
    def gb_per_s(self) -> float:
        """GB/s of all together in one direction: 400 for 8x400Gb."""
        return adapters_gb_per_s(self)

    @staticmethod
    def schema() -> dict[str, Any]:
        return {"type": "string", "description": "network adapters of a node, and their rate", "examples": ["8x400Gb"]}


def adapters_gb_per_s(text: str) -> float:
    """Return GB/s of adapters that are written like 8x400Gb; 0 where the text is none."""
    match = ADAPTERS.fullmatch(text.strip())
    return int(match[1] or 1) * float(match[2]) * GIGA[match[3]] * BYTES[match[4]] if match else 0.0


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


ASSUMED_LINK_GB_PER_S = 25.0  # PCIe Gen4 x16, one direction


class NodeCluster(Spec):
    """A cluster of equal nodes, `planner.cluster/1` too: a file gives these keys, or `ranks` and `levels`."""

    FORMAT: ClassVar[str] = Cluster.FORMAT
    format: str
    name: str
    nodes: RankCount
    gpus: NodeGpus  # of a node
    nics: NodeAdapters | None = None  # of a node; None: as is usual with the device
    source: str = ""  # where this is known from
    usd_per_hour: Amount | None = None  # of one GPU; None: its device's price
    storage: NodeStorage | None = None  # of each node, for outputs of frozen encoders; None: as is assumed

    def __post_init__(self) -> None:
        if self.size > MAX_RANKS:
            raise ValueError(f"{self.nodes} nodes have {self.size} ranks | at most {MAX_RANKS}")

    @property
    def per_node(self) -> int:
        """GPUs of a node."""
        return self.gpus.number

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.nodes * self.per_node


def adapter_gb_per_s(nodes: NodeCluster, device: Device) -> float | None:
    """Return GB/s of one rank to other nodes, as stated, else as is usual with the device; None where neither is."""
    return device.adapter_gb_per_s if nodes.nics is None else nodes.nics.gb_per_s / nodes.per_node


def expand_nodes(nodes: NodeCluster, kind: str, device: Device) -> Cluster:
    """Return the cluster of these nodes, whose ranks are of `kind`. Its source says what is assumed.

    Raises ValueError where the file has several nodes, and neither it nor the device says how they are joined.
    """
    between = adapter_gb_per_s(nodes, device)
    if nodes.nodes > 1 and between is None:
        raise ValueError(f"the device `{kind}` says no rate of its adapters | add nics, as 8x400Gb")
    link = link_of(kind)
    within = device.link_gb_per_s or ASSUMED_LINK_GB_PER_S
    near = Level(name="node", ranks=nodes.per_node, gb_per_s=within, latency_us=link.latency_us or ASSUMED_NODE_US)
    far = [
        Level(name="cluster", ranks=nodes.size, gb_per_s=each, latency_us=ASSUMED_NETWORK_US)
        for each in [between]
        if each and nodes.nodes > 1
    ]
    ranks = RankKind(kind=kind, count=nodes.size, per_node=nodes.per_node, usd_per_hour=nodes.usd_per_hour)
    return Cluster(
        format=Cluster.FORMAT,
        name=nodes.name,
        source=cluster_source(nodes, kind, device),
        ranks=(ranks,),
        levels=(near, *far),
        storage=nodes.storage,
    )


def cluster_source(nodes: NodeCluster, kind: str, device: Device) -> str:
    """Return where each figure of the expanded cluster is from."""
    link = link_of(kind)
    stated = f"{nodes.source.rstrip('. ')}. " if nodes.source else ""
    bandwidth = f"as in the file of {kind}" if device.link_gb_per_s else f"assumed, {ASSUMED_LINK_GB_PER_S:g} GB/s"
    latency = f"latency in a node: {link.source}" if link.latency_us else "latency in a node assumed"
    texts = [f"{nodes.nodes} × {nodes.per_node} {kind}", f"in a node {link.generation}, {bandwidth}", latency]
    if nodes.nodes > 1:
        adapters = f"{nodes.nics} a node" if nodes.nics else f"adapters assumed as usual with {kind}"
        texts += [f"between nodes {adapters}", "latency between nodes assumed"]
    return stated + "; ".join(texts)
