"""Groups of ranks that each hold every table, and the rates of what their ranks read and send.

T ranks are M groups of N = T / M. With replicas in a `node`, the copies of a shard are on M neighbouring ranks and a
group's ranks lie M apart (TorchRec's DMPCollection); `across`, a group is N neighbouring ranks and copies lie N apart.
"""

from dataclasses import dataclass

from planner.plan.embeddings import ranks_in_node
from planner.specs.hardware.cluster import Cluster, nearest_level
from planner.specs.hardware.profile import Device
from planner.specs.tables import Replicas

GB = 1e9


@dataclass(frozen=True, slots=True)
class ShardingGroup:
    """One of `groups` equal groups of ranks; rates are bytes a second of one rank."""

    groups: int
    ranks: int
    per_node: int  # of its ranks, those in one node
    replicas: Replicas
    average_every: int  # steps
    memory_rate: float  # of the device's own memory
    host_rate: float  # to the memory of the host; 0: there is no way
    near: float  # among its ranks in one node
    far: float  # among all its ranks
    adapter: float  # between nodes; among all its ranks where one node has all
    copies: float  # among the copies of a shard

    @property
    def nodes(self) -> int:
        """The nodes that have ranks of it."""
        return self.ranks // self.per_node


def sharding_group(
    cluster: Cluster, device: Device, groups: int, replicas: Replicas, average_every: int
) -> ShardingGroup:
    """A group where the ranks of a cluster are this many, which divides them."""
    size, apart = cluster.size, groups if replicas == "node" else 1
    ranks, per_node = size // groups, ranks_in_node(size, cluster.ranks[0].per_node, groups, replicas)
    farthest = nearest_level(cluster, 0, apart * (ranks - 1)).gb_per_s * GB
    copies = nearest_level(cluster, 0, (1 if replicas == "node" else ranks) * (groups - 1)).gb_per_s * GB
    return ShardingGroup(
        groups=groups,
        ranks=ranks,
        per_node=per_node,
        replicas=replicas,
        average_every=average_every,
        memory_rate=device.memory_gb_per_s * GB,
        host_rate=(device.host_gb_per_s or 0.0) * GB,
        near=nearest_level(cluster, 0, apart * (per_node - 1)).gb_per_s * GB,
        far=farthest,
        adapter=cluster.levels[-1].gb_per_s * GB if len(cluster.levels) > 1 else farthest,
        copies=copies,
    )


def possible_groups(cluster: Cluster, groups: int | None, replicas: Replicas | None) -> list[tuple[int, Replicas]]:
    """Every number of groups that divides the ranks, or the one that is fixed, with each place of the copies that
    differs. One group has no copies.
    """
    numbers = [each for each in range(1, cluster.size + 1) if cluster.size % each == 0 and groups in (None, each)]
    places: tuple[Replicas, ...] = (replicas,) if replicas else ("node", "across")
    return [(each, place) for each in numbers for place in (places if 1 < each < cluster.size else places[:1])]
