"""Clusters by what people know: `nodes: 8`, `gpus: 8xh100`, `nics: 8x400Gb`, expanded to ranks and levels."""

from typing import ClassVar

from planner.specs.base import MAX_RANKS, Amount, RankCount, Spec
from planner.specs.hardware.cluster import Cluster, Level, NodeStorage, RankKind
from planner.specs.hardware.node_links import ASSUMED_NETWORK_US, ASSUMED_NODE_US, link_of
from planner.specs.hardware.node_parts import NodeAdapters, NodeGpus
from planner.specs.hardware.profile import Device

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
