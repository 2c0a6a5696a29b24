"""What a node has for its ranks beside their devices: memory of the host, and disks.

A cluster says it (`storage`), or it is assumed: of the host's memory, what is usual for machines with its devices
(`host_gib` of each device's file), less a tenth that the system and loading of data have.
"""

from collections.abc import Mapping

from planner.specs.hardware.cluster import ASSUMED_STORAGE, Cluster, NodeStorage
from planner.specs.hardware.profile import Device
from planner.units import GIB

FREE_SHARE = 0.9  # of a host's memory, where a cluster does not say what training may have of it: assumed


def storage_of(cluster: Cluster) -> NodeStorage:
    """Return what a node has: as the cluster says, else as is assumed."""
    return cluster.storage or ASSUMED_STORAGE


def host_bytes(cluster: Cluster, devices: Mapping[str, Device], rank: int) -> float:
    """Return the bytes of host memory that the ranks of a rank's node share."""
    stated = storage_of(cluster).host_gib
    if stated is not None:
        return stated * GIB
    for entry in cluster.ranks:
        if rank < entry.count:
            device = devices[entry.kind]
            each = device.memory_gib if device.host_gib is None else device.host_gib
            return FREE_SHARE * each * entry.per_node * GIB
        rank -= entry.count
    raise IndexError("the cluster has no such rank")
