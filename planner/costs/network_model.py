"""Seconds of collectives and point-to-point sends within a group: as measured where tables have them, else analytic.

A group has a size, a stride between neighbours, and a span: how many consecutive ranks it reaches over, which decides
the network level that joins it. A ring through nodes leaves each by one adapter and enters by another, and as many
rings run at once as the group has members in a node, so that a group of neighbours has more bandwidth than one rank's
own adapter. Everything broadcasts: the same code prices one task and a million layouts.

Sizes are those of the buffer on each rank: what it sends in an all-to-all or a point-to-point send, the whole gathered
buffer in an all-gather or a reduce-scatter.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from planner.costs.cost_lines import NO_COST, Cost
from planner.costs.layout_columns import Number
from planner.specs.hardware.cluster import (
    Cluster,
    device_of_rank,
    has_own_levels,
    levels_of_kind,
    nearest_level,
    node_of_rank,
)
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint
from planner.units import GB, US

ANALYTIC_SPREAD = 0.4  # assumed: what collectives reach of data-sheet bandwidths varies


class CommGroup(NamedTuple):
    """Ranks that communicate with each other."""

    size: Number
    stride: Number = 1  # ranks from one member to the next
    span: Number = 1  # at least the consecutive ranks from the first member to the last


def strided_group(size: Number, stride: Number = 1) -> CommGroup:
    """A group of `size` ranks, `stride` apart, from the first rank of a block on."""
    return CommGroup(size, stride, size * stride)


class NetworkLevel(NamedTuple):
    """A level of the network with the bandwidth that collectives reach, per rank and direction."""

    ranks: int  # consecutive ranks that it joins
    gb_per_s: float
    us: float  # latency of one hop


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """Levels from near to far, the first within a node; and tables of collectives that were measured on them."""

    levels: tuple[NetworkLevel, ...]
    tables: dict[str, CollectiveCosts] = field(default_factory=dict)
    cached_costs: dict[tuple[str, float, CommGroup, float], Cost] = field(default_factory=dict, compare=False)
    cached_links: dict[CommGroup, tuple[float, float]] = field(default_factory=dict, compare=False)

    @property
    def per_node(self) -> int:
        """Ranks of a node."""
        return self.levels[0].ranks

    @property
    def joined_below_last(self) -> int:
        """Ranks that the widest level below the last joins: any that are farther apart have the last level between
        them. 1 where there is one level only.
        """
        return self.levels[-2].ranks if len(self.levels) > 1 else 1

    def crosses_nodes(self, ranks: CommGroup) -> Number:
        """Whether a group reaches beyond one node."""
        return np.asarray(ranks.span) > self.per_node

    def internode_link(self, ranks: CommGroup) -> tuple[Number, Number]:
        """Bytes per second, and seconds per hop, of the nearest level beyond nodes that joins a group."""
        *nearer, last = self.levels[1:] or self.levels
        speed, hop = np.asarray(last.gb_per_s), np.asarray(last.us)
        for level in reversed(nearer):
            within = np.asarray(ranks.span) <= level.ranks
            speed, hop = np.where(within, level.gb_per_s, speed), np.where(within, level.us, hop)
        return speed * GB, hop * US

    def ring_bytes_per_second(self, ranks: CommGroup) -> Number:
        """Bytes per second of rings through a group."""
        members = np.maximum(1.0, self.per_node / ranks.stride)
        near = self.levels[0].gb_per_s * GB
        return np.where(self.crosses_nodes(ranks), np.minimum(near, self.internode_link(ranks)[0] * members), near)

    def latency(self, ranks: CommGroup) -> Number:
        """Seconds of latency of one collective: hops of a ring within a node, of a tree between nodes."""
        apart = np.minimum(1.0, ranks.stride / self.per_node)  # nodes per rank, at most one
        nodes = np.where(self.crosses_nodes(ranks), np.maximum(1.0, ranks.size * apart), 1.0)
        within = np.minimum(ranks.size, np.maximum(1.0, self.per_node / ranks.stride))
        return self.levels[0].us * US * (within - 1.0) + 2.0 * self.internode_link(ranks)[1] * np.log2(nodes)

    def all_gather(self, size_bytes: Number, ranks: CommGroup, calls: Number = 1.0, kind: str = "all_gather") -> Number:
        """Seconds of `calls` all-gathers (or another `kind`: reduce-scatters) of `size_bytes` in all."""
        moved = size_bytes * (ranks.size - 1.0) / ranks.size / self.ring_bytes_per_second(ranks)
        return self.measured_or_analytic(kind, size_bytes, ranks, calls, moved + calls * self.latency(ranks))

    def reduce_scatter(self, size_bytes: Number, ranks: CommGroup, calls: Number = 1.0) -> Number:
        """Seconds of `calls` reduce-scatters of `size_bytes` in all."""
        return self.all_gather(size_bytes, ranks, calls, "reduce_scatter")

    def all_reduce(self, size_bytes: Number, ranks: CommGroup, calls: Number = 1.0) -> Number:
        """Seconds of a reduce-scatter and an all-gather."""
        return self.reduce_scatter(size_bytes, ranks, calls) + self.all_gather(size_bytes, ranks, calls)

    def all_to_all(self, size_bytes: Number, ranks: CommGroup, calls: Number = 1.0, far: Number = 1.0) -> Number:
        """Seconds of an all-to-all in which each rank sends `size_bytes` in all, equally to each rank of its group.

        What leaves a node takes its adapter; `far` is the share of that which really leaves.
        """
        near = np.minimum(
            ranks.size, np.maximum(1.0, self.per_node / ranks.stride)
        )  # members in a node, itself included
        near = np.where(self.crosses_nodes(ranks), near, ranks.size)
        inside = size_bytes * (near - 1.0) / ranks.size / (self.levels[0].gb_per_s * GB)
        outside = far * size_bytes * (ranks.size - near) / ranks.size / self.internode_link(ranks)[0]
        seconds = np.maximum(inside, outside) + calls * self.latency(ranks)
        return self.measured_or_analytic("all_to_all", size_bytes, ranks, calls, seconds)

    def p2p(self, size_bytes: Number, ranks: CommGroup, calls: Number = 1.0) -> Number:
        """Seconds of a send to the next rank of a group, over its slowest link."""
        over, wait = self.slowest_link(ranks)
        return self.measured_or_analytic("p2p", size_bytes, ranks, calls, size_bytes / over + calls * wait)

    def slowest_link(self, ranks: CommGroup) -> tuple[Number, Number]:
        """Bytes per second, and seconds per hop, of the slowest link between the next ranks of a group."""
        (speed, hop), near = self.internode_link(ranks), self.levels[0]
        over = np.where(self.crosses_nodes(ranks), speed, near.gb_per_s * GB)
        return over, np.where(self.crosses_nodes(ranks), hop, near.us * US)

    def send_seconds(self, size_bytes: float, ranks: CommGroup) -> float:
        """What `p2p` gives for one send, in a hundredth of the time: searches price very many."""
        if "p2p" in self.tables:
            return float(self.p2p(size_bytes, ranks))
        if ranks not in self.cached_links:
            over, wait = self.slowest_link(ranks)
            self.cached_links[ranks] = float(over), float(wait)
        speed, hop = self.cached_links[ranks]
        return size_bytes / speed + hop if ranks.size > 1 else 0.0

    def measured_or_analytic(
        self, kind: str, size_bytes: Number, ranks: CommGroup, calls: Number, analytic: Number
    ) -> Number:
        """Seconds as measured of this kind at the level that joins the group, else the analytic ones; 0 for a single
        rank.
        """
        seconds, table = analytic, self.tables.get(kind)
        for nearer, within in self.level_masks(ranks) if table else ():
            points = sorted((p for p in table.points if p.ranks > nearer), key=lambda p: p.ranks) if table else []
            if points:
                sizes = np.array([p.ranks for p in points])
                at = np.minimum(np.searchsorted(sizes, ranks.size), len(points) - 1)
                us, speed = (np.array([getattr(p, name) for p in points])[at] for name in ("latency_us", "gb_per_s"))
                seconds = np.where(within, calls * us * US + size_bytes / (speed * GB), seconds)
        return np.where(np.asarray(ranks.size) > 1, seconds, 0.0)

    def level_masks(self, ranks: CommGroup) -> list[tuple[int, Number]]:
        """For each level, how many ranks the level below joins, and whether a group is of this level."""
        nearer = [0, *(level.ranks for level in self.levels[:-1])]
        tops = [*(level.ranks for level in self.levels[:-1]), np.inf]
        span = np.asarray(ranks.span)
        return [(low, (span > low) & (span <= high)) for low, high in zip(nearer, tops, strict=True)]

    def collective_cost(self, kind: str, size_bytes: float, ranks: CommGroup, calls: float = 1.0) -> Cost:
        """The cost of one collective of one group, cached. Beyond what a table covers it is extrapolated, with twice
        the spread.
        """
        key = kind, size_bytes, ranks, calls
        if key not in self.cached_costs:
            self.cached_costs[key] = (
                self.new_collective_cost(kind, size_bytes, ranks, calls) if ranks.size > 1 else NO_COST
            )
        return self.cached_costs[key]

    def new_collective_cost(self, kind: str, size_bytes: float, ranks: CommGroup, calls: float) -> Cost:
        """Compute what `collective_cost` caches."""
        formulas = {"all_to_all": self.all_to_all, "p2p": self.p2p, "all_reduce": self.all_reduce}
        formula = formulas.get(kind)
        seconds = float(
            formula(size_bytes, ranks, calls) if formula else self.all_gather(size_bytes, ranks, calls, kind)
        )
        table = self.tables.get(kind)
        nearer = next(low for low, within in reversed(self.level_masks(ranks)) if within)
        point = measured_point(table.points, int(ranks.size), nearer) if table else None
        if table is None or point is None:
            return Cost(seconds, "analytic", ANALYTIC_SPREAD, seconds)
        spread = table.spread if point.ranks >= max(ranks.size, nearer + 1) else 2 * table.spread
        return Cost(seconds, table.source, spread, seconds)


def measured_point(points: Sequence[CollectivePoint], ranks: int, nearer: int) -> CollectivePoint | None:
    """The next larger size that was measured at this level or a farther one, else the largest; None where there is
    none.
    """
    rising = sorted((point for point in points if point.ranks > nearer), key=lambda point: point.ranks)
    return next((point for point in rising if point.ranks >= ranks), rising[-1] if rising else None)


def group_of_ranks(cluster: Cluster, ranks: Sequence[int]) -> CommGroup:
    """The group that these ranks form. A ring is as wide as its narrowest node."""
    near, level = (
        levels_of_kind(cluster, device_of_rank(cluster, ranks[0]))[0],
        nearest_level(cluster, ranks[0], ranks[-1]),
    )
    if level is near:
        return CommGroup(len(ranks), 1, len(ranks))
    fewest = min(
        Counter(
            node_of_rank(cluster, rank) if has_own_levels(cluster) else rank // near.ranks for rank in ranks
        ).values()
    )
    return CommGroup(len(ranks), near.ranks / fewest, level.ranks)


def network_of(
    cluster: Cluster, kind: str, rates: DeviceRates, tables: dict[str, CollectiveCosts] | None = None
) -> NetworkModel:
    """The levels between ranks of a kind with the bandwidth that collectives reach: links within a node, adapters
    beyond; the farthest joins them with others.
    """
    every = levels_of_kind(cluster, kind)
    shares = [rates.link_share, *(rates.adapter_share for _ in every[1:])]
    levels = tuple(
        NetworkLevel(level.ranks, level.gb_per_s * (share or 1.0), level.latency_us)
        for level, share in zip(every, shares, strict=True)
    )
    return NetworkModel(levels, tables or {})


SINGLE_RANK_NETWORK = NetworkModel((NetworkLevel(1, 1.0, 0.0),))  # the network of a single rank
