"""Seconds of one collective: what was measured of it at its level of the network, else what the wires give.

Bytes are those of the buffer each rank holds: what it sends in an all-to-all or a p2p, the whole gathered buffer in an
all-gather or a reduce-scatter.
"""

from collections import Counter
from dataclasses import dataclass, field

from planner.costs.cost import FREE, Cost
from planner.costs.static.assumed import ASSUMED
from planner.costs.static.wires import Wires
from planner.specs.base import Ranks
from planner.specs.cluster import Cluster, level_of
from planner.specs.profile import Collective, Point
from planner.specs.rates import Rates
from planner.units import GB, US

ANALYTIC_SPREAD = 0.4  # assumed: what collectives reach of data-sheet bandwidths varies


@dataclass(frozen=True, slots=True)
class Network:
    """What carries a group's data: its ranks, and what is known of the wires between them."""

    ranks: Ranks
    cluster: Cluster
    tables: dict[str, Collective] = field(default_factory=dict)
    rates: Rates = ASSUMED  # of which: the share of links and adapters that collectives reach

    def cost(self, kind: str, size_bytes: float, calls: int) -> Cost:
        """`calls` collectives of `kind` that move `size_bytes` per rank in all."""
        if len(self.ranks) < 2:
            return FREE
        table = self.tables.get(kind)
        point = measured_point(table.points, len(self.ranks), self.nearer) if table else None
        if table and point:
            spread = table.spread if point.ranks >= self.extent else 2 * table.spread  # beyond the table: extrapolated
            return line(point, size_bytes, calls, table, spread)
        seconds = wired(kind, size_bytes, calls, self)
        return Cost(seconds, "analytic", ANALYTIC_SPREAD, seconds)

    def parts(self, count: int) -> "list[Network]":
        """Equal parts of consecutive ranks."""
        size = len(self.ranks) // count
        cuts = (self.ranks[first : first + size] for first in range(0, count * size, size))
        return [Network(Ranks(ranks), self.cluster, self.tables, self.rates) for ranks in cuts]

    @property
    def nearer(self) -> int:
        """Ranks that the levels join which are nearer than the one that these ranks need."""
        level = level_of(self.cluster, self.ranks[0], self.ranks[-1])
        return max((other.ranks for other in self.cluster.levels if other.ranks < level.ranks), default=0)

    @property
    def extent(self) -> int:
        """How many ranks an aligned block has at least that crosses the same level: tables are of such blocks."""
        return max(len(self.ranks), self.nearer + 1)


def measured_point(points: tuple[Point, ...], ranks: int, nearer: int) -> Point | None:
    """The next larger size measured at this level or a farther one, else the largest there; None: there is none."""
    rising = sorted((point for point in points if point.ranks > nearer), key=lambda point: point.ranks)
    return next((point for point in rising if point.ranks >= ranks), rising[-1] if rising else None)


def line(point: Point, size_bytes: float, calls: int, table: Collective, spread: float) -> Cost:
    seconds = calls * point.latency_us * US + size_bytes / (point.gb_per_s * GB)
    return Cost(seconds, table.source, spread, seconds)


def wired(kind: str, size_bytes: float, calls: int, network: Network) -> float:
    """Seconds over the nearest level and the one that joins the ranks. A ring goes as wide as its narrowest node."""
    cluster, ranks, rates = network.cluster, network.ranks, network.rates
    near, far = cluster.levels[0], level_of(cluster, ranks[0], ranks[-1])
    fewest = min(Counter(rank // near.ranks for rank in ranks).values())
    stride = near.ranks / fewest if far is not near else 1.0
    wires = Wires(
        per_node=near.ranks,
        near_gb_per_s=near.gb_per_s * (rates.link_share or 1.0),
        far_gb_per_s=far.gb_per_s * ((rates.link_share if far is near else rates.adapter_share) or 1.0),
        near_us=near.latency_us,
        far_us=far.latency_us,
    )
    size = len(ranks)
    if kind == "p2p":  # of a ring through all ranks, the slowest link
        return float(wires.p2p(size_bytes, 1.0 if far is near else near.ranks, calls))
    if kind == "all_to_all":
        return float(wires.all_to_all(size_bytes, size, stride) + (calls - 1) * wires.latency(size, stride))
    if kind == "all_reduce":
        return float(wires.all_reduce(size_bytes, size, stride, calls))
    return float(wires.gather(size_bytes, size, stride, calls))
