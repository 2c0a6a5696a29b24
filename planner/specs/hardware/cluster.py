"""Clusters: kinds of ranks, and the levels of the network between them.

In tables an entry for one of several kinds of ranks names its kind: `llm@h100-80gb` beside `llm@a100-80gb`. Files of a
cluster with one kind have plain names.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, ClassVar, TypeVar

import msgspec

from planner.specs.base import Amount, Positive, RankCount, Spec, with_fields


class Level(Spec):
    """A level of the network: ranks within one block of it communicate at its bandwidth. Levels go from near to far."""

    name: str
    ranks: RankCount  # consecutive ranks that one block of the level connects
    gb_per_s: Positive  # in one direction, per rank
    latency_us: Amount


class RankKind(Spec):
    """`count` ranks on the same device, `per_node` to a node; ranks are numbered in the order of these entries."""

    kind: str  # the device's name, a file of profiles/devices
    count: RankCount
    per_node: RankCount
    # of one rank, in place of its device's price; the cluster's `source` says whose price
    usd_per_hour: Amount | None = None
    # Between ranks of this entry alone, counted from its first; the last connects all. Left out: as the cluster's
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        if self.levels:
            check_levels(self.levels, self.count)


class NodeStorage(Spec):
    """What a node has for all of its ranks together, to keep activations, optimizer states and outputs of frozen
    encoders in.
    """

    host_gib: Amount | None = None  # of its memory, beside what training has there; None: by its devices
    disk_gib: Amount = 1024.0
    disk_gb_per_s: Positive = 2.0  # to its disks and from them


# Where a cluster says nothing of its storage: one NVMe disk of the slower kind. Assumed, not measured.
ASSUMED_STORAGE = NodeStorage()


class Cluster(Spec):
    """A cluster file, `planner.cluster/1`; shipped ones are in `profiles/clusters`."""

    FORMAT: ClassVar[str] = "planner.cluster/1"
    format: str
    name: str
    source: str
    ranks: Annotated[tuple[RankKind, ...], msgspec.Meta(min_length=1)]
    levels: Annotated[tuple[Level, ...], msgspec.Meta(min_length=1)]
    storage: NodeStorage | None = None  # of each node; None: ASSUMED_STORAGE

    def __post_init__(self) -> None:
        check_levels(self.levels, self.size)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(kind.count for kind in self.ranks)


def check_levels(levels: tuple[Level, ...], size: int) -> None:
    """Raises ValueError where levels do not go from near to far, or the last does not connect all ranks."""
    sizes = [level.ranks for level in levels]
    if sizes != sorted(set(sizes)):
        raise ValueError("the levels do not go from near to far | give each more ranks than the one before")
    if sizes[-1] < size:
        raise ValueError(f"the last level connects {sizes[-1]} of {size} ranks | let it connect all")


def part_of_cluster(cluster: Cluster, ranks: Collection[int]) -> Cluster:
    """Return the cluster that has these ranks of it only."""
    kept, first = [], 0
    for entry in cluster.ranks:
        count = sum(first <= rank < first + entry.count for rank in ranks)
        kept += [with_fields(entry, count=count)] if count else []
        first += entry.count
    return with_fields(cluster, ranks=tuple(kept))


def nearest_level(cluster: Cluster, first: int, last: int) -> Level:
    """Return the nearest level with both ranks in one block: of an entry's own where it has both."""
    begin = 0
    for entry in cluster.ranks:
        within = begin <= first and last < begin + entry.count
        if entry.levels and within:
            return nearest_of(entry.levels, first - begin, last - begin)
        begin += entry.count
    return cluster.levels[-1] if has_own_levels(cluster) else nearest_of(cluster.levels, first, last)


def nearest_of(levels: tuple[Level, ...], first: int, last: int) -> Level:
    """Return the nearest of some levels with both ranks in one block."""
    return next((each for each in levels if first // each.ranks == last // each.ranks), levels[-1])


def has_own_levels(cluster: Cluster) -> bool:
    """Whether ranks of some entries have links of their own: then the cluster's last level is what joins entries."""
    return any(entry.levels for entry in cluster.ranks)


def levels_of_kind(cluster: Cluster, kind: str) -> tuple[Level, ...]:
    """Return the levels between ranks of a kind, and farthest that to others where theirs are their own."""
    own = next((entry for entry in cluster.ranks if entry.kind == kind and entry.levels), None)
    return (
        (*own.levels, cluster.levels[-1]) if own and own.count < cluster.size else own.levels if own else cluster.levels
    )


def node_of_rank(cluster: Cluster, rank: int) -> int:
    """Return the number of a rank's node."""
    nodes = 0
    for entry in cluster.ranks:
        if rank < entry.count:
            return nodes + rank // entry.per_node
        rank, nodes = rank - entry.count, nodes + -(-entry.count // entry.per_node)
    return nodes


def device_of_rank(cluster: Cluster, rank: int) -> str:
    """Return the name of a rank's device: ranks are numbered in the order of the cluster's entries."""
    for entry in cluster.ranks:
        if rank < entry.count:
            return entry.kind
        rank -= entry.count
    return cluster.ranks[-1].kind


def ranks_of_kind(cluster: Cluster, kind: str) -> tuple[int, ...]:
    """Return the ranks whose device is of a kind."""
    found, first = list[int](), 0
    for entry in cluster.ranks:
        found += range(first, first + entry.count) if entry.kind == kind else ()
        first += entry.count
    return tuple(found)


def cluster_of_kinds(cluster: Cluster, kinds: Collection[str]) -> Cluster:
    """Return the cluster that has the ranks of some kinds only, with the links between these."""
    kept = tuple(entry for entry in cluster.ranks if entry.kind in kinds)
    if len(kept) > 1 or not kept[0].levels:
        return with_fields(cluster, ranks=kept)
    return with_fields(cluster, ranks=(with_fields(kept[0], levels=()),), levels=kept[0].levels)


T = TypeVar("T")


def rank_kinds(cluster: Cluster) -> tuple[str, ...]:
    """Return the cluster's kinds of ranks, each once, in its order."""
    return tuple(dict.fromkeys(entry.kind for entry in cluster.ranks))


def entry_name(name: str, kind: str, among: Iterable[str]) -> str:
    """Return the name of an entry for ranks of `kind`: the plain name where there is no other kind."""
    return f"{name}@{kind}" if len(tuple(among)) > 1 else name


def entry_of_kind(table: Mapping[str, T], name: str, kind: str) -> T | None:
    """Return the entry for ranks of `kind`: their own, else the one of every kind; None: there is neither."""
    return table.get(f"{name}@{kind}", table.get(name))


def entries_of_kind(table: Mapping[str, T], kind: str) -> dict[str, T]:
    """Return all entries for ranks of `kind`, by plain name."""
    names = dict.fromkeys(key.partition("@")[0] for key in table)
    found = ((name, entry_of_kind(table, name, kind)) for name in names)
    return {name: value for name, value in found if value is not None}
