"""Seconds of one collective: α(group) + bytes/bandwidth(kind, group size, level of the network).

Bytes are those of the buffer each rank holds: what it sends in an all-to-all or a p2p, the whole gathered buffer in an
all-gather or a reduce-scatter.
"""

from planner.costs.cost import FREE, Cost
from planner.specs.base import Ranks
from planner.specs.cluster import Cluster, Level, level_of
from planner.specs.profile import Collective, Point
from planner.units import GB, US

ANALYTIC_SPREAD = 0.4  # assumed: data-sheet bandwidths are never reached


def collective_cost(
    kind: str, size_bytes: float, calls: int, ranks: Ranks, cluster: Cluster, tables: dict[str, Collective]
) -> Cost:
    """`calls` collectives of `kind` that move `size_bytes` per rank in all. From the table if there is one."""
    if len(ranks) < 2:
        return FREE
    level = level_of(cluster, ranks[0], ranks[-1])
    table = tables.get(kind)
    extent = aligned_extent(cluster, ranks)
    point = measured_point(table.points, extent) if table else None
    if table and point:
        spread = table.spread if point.ranks >= extent else 2 * table.spread  # beyond the table: extrapolated
        return line(point, size_bytes, calls, table, spread)
    seconds = calls * level.latency_us * US + size_bytes * moved_share(kind, len(ranks)) / bandwidth(level)
    return Cost(seconds, "analytic", ANALYTIC_SPREAD, seconds)


def aligned_extent(cluster: Cluster, ranks: Ranks) -> int:
    """How many ranks an aligned block has at least that crosses the same level: tables are measured on such blocks."""
    level = level_of(cluster, ranks[0], ranks[-1])
    nearer = max((other.ranks for other in cluster.levels if other.ranks < level.ranks), default=0)
    return max(len(ranks), nearer + 1)


def measured_point(points: tuple[Point, ...], ranks: int) -> Point | None:
    """The next larger measured size; the largest one beyond the table."""
    rising = sorted(points, key=lambda point: point.ranks)
    return next((point for point in rising if point.ranks >= ranks), rising[-1] if rising else None)


def line(point: Point, size_bytes: float, calls: int, table: Collective, spread: float) -> Cost:
    seconds = calls * point.latency_us * US + size_bytes / (point.gb_per_s * GB)
    return Cost(seconds, table.source, spread, seconds)


def bandwidth(level: Level) -> float:
    return level.gb_per_s * GB


def moved_share(kind: str, ranks: int) -> float:
    """How much of its buffer a rank puts on the wire: everything but its own part; all of it point to point."""
    share = {"all_reduce": 2 * (ranks - 1) / ranks, "p2p": 1.0}
    return share.get(kind, (ranks - 1) / ranks)
