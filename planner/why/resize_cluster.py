"""Changes of the cluster: more or fewer ranks, a faster network between nodes, more memory."""

from dataclasses import replace
from math import ceil

from planner.costs import Pricing
from planner.errors import InputError
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind, rank_kinds
from planner.specs.hardware.profile import CollectiveCosts
from planner.specs.inputs import Inputs
from planner.specs.sequence_sharding import SequenceSplit
from planner.strategies import data_parallel_layouts, plan_uses
from planner.units import GIB


def node_of(cluster: Cluster, rank: int) -> int:
    """The node of a rank; a node holds ranks of one kind."""
    first = 0
    for entry in cluster.ranks:
        if rank < entry.count:
            return first + rank // entry.per_node
        first += ceil(entry.count / entry.per_node)
        rank -= entry.count
    return first


def spans_nodes(cluster: Cluster, ranks: Ranks) -> bool:
    """Whether the first and the last of these ranks are on different nodes."""
    return node_of(cluster, ranks[0]) != node_of(cluster, ranks[-1])


def only_kind(cluster: Cluster, key: str) -> RankKind:
    """The only kind of rank. Raises InputError where there are several."""
    if len(cluster.ranks) > 1:
        kinds = ", ".join(f"{entry.count} × {entry.kind}" for entry in cluster.ranks)
        message = f"`{key}` does not say of which kind: the plan has {kinds}"
        raise InputError(message, where=key, fix="change the job's cluster and solve it")
    return cluster.ranks[0]


def with_ranks(inputs: Inputs, at: int, count: int) -> Inputs:
    """Set the number of ranks of the kind at index `at`; the widest network level grows with them."""
    entries = list(inputs.cluster.ranks)
    entries[at] = with_count(entries[at], count, inputs.cluster.levels[-1])
    size = sum(entry.count for entry in entries)
    *nearer, widest = inputs.cluster.levels
    levels = (*nearer, with_fields(widest, ranks=max(widest.ranks, size)))
    return on_cluster(inputs, with_fields(inputs.cluster, ranks=tuple(entries), levels=levels))


def with_count(entry: RankKind, count: int, beyond: Level) -> RankKind:
    """The entry with so many ranks: its widest level grows with them, or beyond its only node there is another."""
    if not entry.levels or entry.levels[-1].ranks >= count:
        return with_fields(entry, count=count)
    *nearer, widest = entry.levels
    own = (
        (widest, with_fields(beyond, ranks=count))
        if widest.ranks <= entry.per_node
        else (with_fields(widest, ranks=count),)
    )
    return with_fields(entry, count=count, levels=(*nearer, *own))


def on_cluster(inputs: Inputs, cluster: Cluster) -> Inputs:
    return replace(inputs, cluster=cluster)


def with_bandwidth(inputs: Inputs, times: float) -> Inputs | None:
    """Multiply the bandwidth between nodes, in the cluster's levels and in measured tables; None on a single node."""
    faster = faster_network(inputs.cluster, inputs.profile.collectives, times)
    if faster is None:
        return None
    cluster, tables = faster
    return replace(on_cluster(inputs, cluster), profile=with_fields(inputs.profile, collectives=tables))


Tables = dict[str, CollectiveCosts]  # measured collectives, by kind of rank


def faster_network(cluster: Cluster, tables: Tables, times: float) -> tuple[Cluster, Tables] | None:
    """A cluster and its measured tables with so many times the bandwidth between nodes; None on a single node.

    The groups of a table are aligned: those with more ranks than a node cross nodes.
    """
    node = max(entry.per_node for entry in cluster.ranks)
    if cluster.size <= node:
        return None
    entries = tuple(with_fields(entry, levels=faster_levels(entry.levels, node, times)) for entry in cluster.ranks)
    levels = faster_levels(cluster.levels, node, times)
    faster = {kind: faster_table(table, node, times) for kind, table in tables.items()}
    return with_fields(cluster, ranks=entries, levels=levels), faster


def faster_levels(levels: tuple[Level, ...], node: int, times: float) -> tuple[Level, ...]:
    """Levels of which those beyond a node have so many times the bandwidth."""
    return tuple(
        with_fields(level, gb_per_s=level.gb_per_s * times) if level.ranks > node else level for level in levels
    )


def faster_table(table: CollectiveCosts, node: int, times: float) -> CollectiveCosts:
    points = (with_fields(p, gb_per_s=p.gb_per_s * times) if p.ranks > node else p for p in table.points)
    return with_fields(table, points=tuple(points))


def with_memory(inputs: Inputs, gib: float) -> tuple[Inputs, str]:
    """Add memory to each rank, and a text for it; as tokens, where the job limits tokens instead."""
    limits = inputs.job.limits
    if limits.tokens_per_rank is None:
        devices = {name: with_fields(d, memory_gib=d.memory_gib + gib) for name, d in inputs.devices.items()}
        return replace(inputs, devices=devices), f"{gib:g} GiB more per rank"
    per_token = max(
        bytes_per_token(inputs, kind) for kind in rank_kinds(inputs.cluster)
    )  # for the kind with most bytes per token
    more = int(gib * GIB / per_token) if per_token else 0
    limits = with_fields(limits, tokens_per_rank=limits.tokens_per_rank + more)
    return replace(inputs, job=with_fields(inputs.job, limits=limits)), f"{gib:g} GiB more per rank ({more:,} tokens)"


def bytes_per_token(inputs: Inputs, kind: str) -> float:
    """Peak bytes of one token of a micro-batch, on ranks of a kind."""
    layouts = data_parallel_layouts(inputs)
    used = plan_uses(inputs, layouts, ())
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    layers = Layers(range(inputs.spec.layers))
    return pricing.module_pricing(inputs.module, kind).activation_bytes(layers, True, SequenceSplit(), (1,)).peak
