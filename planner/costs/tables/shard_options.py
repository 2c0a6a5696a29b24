"""Every way to cut each table, with the seconds and bytes of its shards, as arrays.

A step with B samples a rank on a group of N ranks, of which L are in a node; a table of `dim` d and pooling p; w bytes
an element, indices of 8 bytes. The rank that has a shard reads indices and rows and writes sums, in bytes

    whole, columns  8·BpN,   BpN·max(d, 32)·w,   BN·d·w       d: the shard's columns
    rows            8·Bp,    Bp·d·w,             BN·d·w
    node_rows, grid 8·BpN/L, BpN/L·d·w,          BN·d·w
    replicated      8·Bp,    Bp·d·w,             B·d·w

at the rate of its memory, longer where d fills no block of the kernel (`block_penalty`); backward and update take twice
that (`lookup_seconds`). Sums are sent in both passes (`exchange_seconds`): all-to-all, or reduce-scatter and
all-gather, on nodes first among the L and then among the N/L; gradients of a replicated table are all-reduced, and its
dense kernels reach half of the memory's rate. Copies are averaged by 2(M − 1)/M of their bytes, every k steps
(`average_seconds`).

These are the formulas of TorchRec's estimator (torchrec.distributed.planner.estimator, 1.8.0), with its coefficients
and a cluster's rates; the benchmark `sharded-tables` compares them. A cache of a share c of a table's rows on the
device, the rest in host memory, is hit as often as the c most read rows are, by Zipf's law or as a histogram of reuse
says (`hit_shares`), which TorchRec has in another way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs.tables.sharding_group import ShardingGroup
from planner.plan.embeddings import TableCut, possible_cuts
from planner.specs.tables import CACHES, Cut, Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CUTS: tuple[Cut, ...] = ("whole", "columns", "rows", "node_rows", "grid", "replicated")
ON_RANKS, ON_NODES, ON_ALL = (0, 1), (3, 4), (2, 5)  # cuts whose shards take a rank each, a node each, and all ranks
INDEX_BYTES = 8.0
# TorchRec's, "empirical studies" (torchrec.distributed.planner.constants)
HALF_BLOCK, QUARTER_BLOCK = 1.15, 1.75
BACKWARD, COPY, ELEMENTWISE = 2.0, 2.455, 9.22
DENSE = 0.5  # of the memory's rate, where a table's gradients are dense: replicated ones
NEAR_ONE = 1e-6  # exponents this near to 1 count as just below it


@dataclass(frozen=True, slots=True, eq=False)
class ShardOptions:
    """Ways to cut tables, those of one table together; each array has one entry for each way, (options,).

    Seconds and bytes are of one rank that has a shard; `ranks`: how many have one.
    """

    names: tuple[str, ...]  # of the tables
    first: Ints  # (tables + 1,) a table's first option
    table: Ints
    cut: Ints  # in CUTS
    parts: Ints  # shards that are placed one by one: parts of the columns
    cache: Floats  # share of the rows on the device; 0: all are there, and none in host memory
    ranks: Floats
    lookup: Floats
    exchange: Floats
    average: Floats
    state_bytes: Floats  # of rows and the optimizer's states
    held: Floats  # bytes on the device: these, or what is cached of them, and buffers
    host: Floats  # bytes in host memory

    @property
    def seconds(self) -> Floats:
        """Seconds of a step on one rank that has a shard."""
        return self.lookup + self.exchange + self.average

    @property
    def totals(self) -> Floats:
        """Seconds of a step on all ranks together."""
        return self.seconds * self.ranks

    def of(self, table: int) -> range:
        """The options of a table."""
        return range(int(self.first[table]), int(self.first[table + 1]))

    def least(self, values: Floats) -> Floats:
        """The least of some values among the options of each table, (tables,)."""
        return np.minimum.reduceat(values, self.first[:-1])


def shard_options(tables: Mapping[str, Table], group: ShardingGroup, samples: float) -> ShardOptions:
    """Every way to cut these tables over a group; `samples`: of each rank in a step."""
    cuts = [possible_cuts(table, group.ranks, group.per_node, group.host_rate > 0) for table in tables.values()]
    return priced_cuts(tables, cuts, group, samples)


def priced_cuts(
    tables: Mapping[str, Table], cuts: Sequence[Sequence[TableCut]], group: ShardingGroup, samples: float
) -> ShardOptions:
    """These ways to cut each table, priced."""
    counts = [len(each) for each in cuts]
    flat = np.array([(CUTS.index(cut), *rest) for each in cuts for cut, *rest in each], dtype=np.float64)
    table, cut, parts = np.repeat(np.arange(len(cuts)), counts), flat[:, 0].astype(np.int64), flat[:, 1]
    cached = flat[:, 2]
    facts = np.array([[t.rows, t.dim, t.pooling, t.element_bytes, t.bytes, t.skew] for t in tables.values()])
    rows, dim, pooling, element, whole, skew = facts[table].T
    read = ReadBytes.of(cut, dim / parts, group, samples, pooling, element)
    measured = np.array([table.hits or (np.nan, np.nan) for table in tables.values()])[table]
    hits = hit_shares(rows, skew, cached, measured)
    lookup = lookup_seconds(read, cut, dim / parts, group, hits)
    ranks = np.where(np.isin(cut, ON_ALL), group.ranks, np.where(np.isin(cut, ON_NODES), group.per_node, 1)) * parts
    state_bytes = whole / np.where(cut == CUTS.index("replicated"), 1.0, ranks)
    return ShardOptions(
        names=tuple(tables),
        first=np.cumsum([0, *counts], dtype=np.int64),
        table=table.astype(np.int64),
        cut=cut,
        parts=parts.astype(np.int64),
        cache=cached,
        ranks=ranks,
        lookup=lookup,
        exchange=exchange_seconds(read, cut, group, rows * dim * element),
        average=average_seconds(group, state_bytes),
        state_bytes=state_bytes,
        held=state_bytes * np.where(cached > 0, cached, 1.0) + read.indices + read.sums,
        host=state_bytes * (cached > 0),
    )


def shard_ranks(cut: int, places: Sequence[int], group: ShardingGroup) -> Ints:
    """The ranks of a group that have a shard of a table that is cut this way, at these ranks or nodes."""
    if cut in ON_ALL:
        return np.arange(group.ranks)
    at = np.array(places, dtype=np.int64)
    return (at[:, None] * group.per_node + np.arange(group.per_node)).ravel() if cut in ON_NODES else at


@dataclass(frozen=True, slots=True, eq=False)
class ReadBytes:
    """Bytes of indices, rows and sums that a rank with a shard reads and writes in a forward; and of the sums that it
    sends between nodes where a table is cut over the ranks of one.
    """

    indices: Floats
    rows: Floats
    sums: Floats
    between: Floats

    @classmethod
    def of(
        cls, cut: Ints, columns: Floats, group: ShardingGroup, samples: float, pooling: Floats, element: Floats
    ) -> "ReadBytes":
        """Those of shards with so many columns, of tables with this pooling and bytes an element."""
        among = np.choose(cut, [group.ranks, group.ranks, 1, group.ranks / group.per_node] + 2 * [0])
        among = np.where(cut == CUTS.index("grid"), group.ranks / group.per_node, np.maximum(among, 1.0))
        least = np.where(cut < CUTS.index("rows"), np.maximum(columns, 32.0), columns)
        lookups, writers = samples * pooling * among, np.where(cut == CUTS.index("replicated"), 1.0, group.ranks)
        outputs = samples * np.minimum(pooling, 1.0) * columns * element
        return cls(INDEX_BYTES * lookups, lookups * least * element, outputs * writers, outputs * group.nodes)


def block_penalty(columns: Floats) -> Floats:
    """How much longer a kernel takes whose blocks of 128 columns are not filled."""
    return np.where(columns >= 128, 1.0, np.where(columns >= 64, HALF_BLOCK, QUARTER_BLOCK))


def lookup_seconds(read: ReadBytes, cut: Ints, columns: Floats, group: ShardingGroup, hits: Floats) -> Floats:
    """Seconds of forward, backward and update on a rank with a shard."""
    missed = 0.0 if not group.host_rate else (1.0 - hits) / group.host_rate
    penalty = np.where(cut < CUTS.index("rows"), block_penalty(columns), 1.0)
    rate = group.memory_rate * np.where(cut == CUTS.index("replicated"), DENSE, 1.0)
    forward = ((read.indices + read.sums + read.rows * hits) / rate + read.rows * missed) * penalty
    return (1.0 + BACKWARD) * forward


def exchange_seconds(read: ReadBytes, cut: Ints, group: ShardingGroup, weight_bytes: Floats) -> Floats:
    """Seconds in which a rank with a shard exchanges sums, or gradients of a replicated table, in both passes."""
    copied = COPY * read.sums / group.memory_rate
    among_nodes = 2.0 * read.between / group.adapter if group.nodes > 1 else np.zeros(len(cut))
    nodes = min(group.nodes, 2)
    ring = (2 * nodes - 1) / nodes / (group.adapter * group.per_node) * (2 if group.nodes > 2 else 1)
    gradients = weight_bytes * (ring + ELEMENTWISE / (DENSE * group.memory_rate))
    one_by_one = 2.0 * read.sums / group.far if group.ranks > 1 else np.zeros(len(cut))
    on_node = 2.0 * read.sums / group.near + among_nodes + copied
    return np.choose(cut, [one_by_one, one_by_one, one_by_one + copied, on_node, on_node, gradients])


def average_seconds(group: ShardingGroup, state_bytes: Floats) -> Floats:
    """Seconds of a step in which the copies of a shard are averaged, in the mean of the steps between."""
    if group.groups == 1:
        return np.zeros(len(state_bytes))
    return 2.0 * (group.groups - 1) / group.groups * state_bytes / group.copies / group.average_every


def hit_shares(rows: Floats, skew: Floats, cache: Floats, measured: Floats) -> Floats:
    """The share of lookups that find their row in a cache of the most read ones: `measured`, (options, caches), or by
    Zipf's law where that is NaN; 1 without a cache.
    """
    kept, flat = np.maximum(1.0, cache * rows), 1.0 - np.where(np.abs(skew - 1.0) < NEAR_ONE, 1.0 - NEAR_ONE, skew)
    hits = ((kept + 1.0) ** flat - 1.0) / ((rows + 1.0) ** flat - 1.0)
    known = measured[np.arange(len(cache)), np.abs(cache[:, None] - CACHES).argmin(axis=1)]
    return np.where(cache > 0, np.where(np.isnan(known), np.minimum(hits, 1.0), known), 1.0)
