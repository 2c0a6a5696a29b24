"""Clusters of so many GPUs of one kind, as people ask for them: in nodes, as is usual with the device."""

from pathlib import Path

from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeAdapters, NodeCluster, NodeGpus, expand_nodes
from planner.specs.hardware.pool import RACK_GPUS, USUAL_NODE_GPUS
from planner.specs.hardware.profile import Profile


def asked_device(named: str) -> str:
    """The device of a name; of several that begin with it, of unlike memory, the one with most."""
    shipped = library.shipped_names(Profile)
    meant = [name for name in shipped if name.startswith(f"{named}-") and named not in shipped]
    memory = {name: library.read_named(name, Profile)[0].device.memory_gib for name in meant}
    return max(meant, key=memory.__getitem__) if len(meant) > 1 else named


def usual_per_node(kind: str) -> int:
    """How many devices of a kind a node has."""
    return RACK_GPUS.get(kind, USUAL_NODE_GPUS)


def nodes_of(gpus: NodeGpus, kind: str, nodes: int | None) -> int:
    """GPUs of a node, of so many nodes or as is usual. Raises InputError."""
    per_node = gpus.number // nodes if nodes else min(gpus.number, usual_per_node(kind))
    if nodes and per_node * nodes != gpus.number:
        fix = "a number of --nodes that divides the GPUs"
        raise InputError(f"{gpus.number} GPUs are not {nodes} nodes of as many each", where="--nodes", fix=fix)
    return per_node


def cluster_of_gpus(gpus: NodeGpus, kind: str, per_node: int, nics: NodeAdapters | None) -> NodeCluster | Cluster:
    """The nodes of so many GPUs in all; where the last is not full, with ranks and levels. Raises InputError."""
    whole = NodeCluster(
        format=NodeCluster.FORMAT,
        name=f"{gpus.number}x{Path(gpus.device).stem}",
        nodes=-(-gpus.number // per_node),
        gpus=NodeGpus(f"{per_node}x{gpus.device}"),
        nics=nics,
    )
    if whole.size == gpus.number:
        return whole
    expanded = joined(whole, kind)
    (ranks,), (near, far) = expanded.ranks, expanded.levels
    partly = (with_fields(ranks, count=gpus.number),), (near, with_fields(far, ranks=gpus.number))
    return with_fields(expanded, ranks=partly[0], levels=partly[1])


def joined(nodes: NodeCluster, kind: str) -> Cluster:
    """Nodes as ranks and levels. Raises InputError where nothing says how they are joined."""
    try:
        return expand_nodes(nodes, kind, library.read_named(kind, Profile)[0].device)
    except ValueError as error:
        message = str(error).partition(" | ")[0]
        raise InputError(message, where="--nics", fix="adapters of a node, as --nics 8x400Gb") from error
