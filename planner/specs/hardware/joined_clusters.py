"""One cluster of several kinds of nodes: each keeps its own links, and the slowest adapters join them."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.specs.base import with_fields
from planner.specs.hardware.cluster import Cluster, Level
from planner.specs.hardware.node_cluster import ASSUMED_NETWORK_US


class JoinedPart(NamedTuple):
    """A cluster of one kind, and GB/s of one rank to other nodes."""

    cluster: Cluster
    gb_per_s: float


def joined_cluster(parts: Sequence[JoinedPart]) -> Cluster:
    """The cluster of all these ranks, in their order, on one network."""
    entries = tuple(
        with_fields(entry, levels=links_of(part.cluster, entry.count)) for part in parts for entry in part.cluster.ranks
    )
    ranks = sum(entry.count for entry in entries)
    slowest = min(part.gb_per_s for part in parts)
    latency = max((ASSUMED_NETWORK_US, *(level.latency_us for part in parts for level in part.cluster.levels[1:])))
    first = parts[0].cluster
    return with_fields(
        first,
        name="+".join(part.cluster.name for part in parts),
        source="; ".join(part.cluster.source for part in parts) + "; joined by the slowest adapters",
        ranks=entries,
        levels=(Level(name="cluster", ranks=ranks, gb_per_s=slowest, latency_us=latency),),
    )


def links_of(cluster: Cluster, count: int) -> tuple[Level, ...]:
    """The levels between the ranks of a cluster, as far as one joins all."""
    near = next(number for number, level in enumerate(cluster.levels, 1) if level.ranks >= count)
    return cluster.levels[:near]
