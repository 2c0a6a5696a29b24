"""Where the embedding tables of a plan are: how each is cut, and over which ranks of its group."""

from collections.abc import Mapping
from typing import NamedTuple

from planner.specs.base import Count, Indices, Name, RankCount, Ranks, Share, Spec
from planner.specs.tables import CACHES, Cut, Replicas, Table

ON_ALL: tuple[Cut, ...] = ("rows", "replicated")  # shards are on every rank of a group
CACHED: tuple[Cut, ...] = ("whole", "rows")  # with rows in host memory
TableCut = tuple[Cut, int, float]  # a cut, parts of the columns, share of the rows that is on the device; 0: all


class TablePlacement(Spec):
    """How one table is cut, and where its shards are: the same in every group."""

    cut: Cut
    at: Indices = Indices()  # ranks of a group, counted from 0; of node_rows and grid its nodes; of others none
    cache: Share = 0.0  # of its rows that are on the device, the others in host memory; 0: all are on the device

    @property
    def parts(self) -> int:
        """The shards that are placed one by one: parts of the columns."""
        return max(1, len(self.at))


class Embeddings(Spec, kw_only=True):
    """The embedding tables of a model: in each of equal groups of ranks all of them, every one once."""

    groups: RankCount
    replicas: Replicas = "node"  # copies of a shard on neighbouring ranks; or a group on neighbouring ranks
    average_every: Count = 1  # steps after which copies are averaged
    tables: dict[Name, TablePlacement]

    def group_ranks(self, size: int) -> list[Ranks]:
        """The ranks of each group, of so many in all: the copies of a shard have the same place in each."""
        ranks, step = size // self.groups, self.groups if self.replicas == "node" else 1
        firsts = range(self.groups) if step > 1 else range(0, size, ranks)
        return [Ranks(range(first, first + step * ranks, step)) for first in firsts]


def possible_cuts(table: Table, ranks: int, per_node: int, host: bool) -> list[TableCut]:
    """Every way to cut a table over a group of so many ranks, from the plainest on; `host`: whether its rows may be in
    host memory.
    """
    parts, on_nodes = table.column_parts, 1 < per_node < ranks
    cuts: list[TableCut] = [("whole", 1, 0.0)]
    if ranks > 1:
        cuts += [("columns", n, 0.0) for n in parts if n <= ranks]
        cuts += [("rows", 1, 0.0), ("node_rows", 1, 0.0)] if on_nodes else [("rows", 1, 0.0)]
        cuts += [("grid", n, 0.0) for n in parts if on_nodes and n <= ranks // per_node]
        cuts.append(("replicated", 1, 0.0))
    if host:
        cuts += [(cut, 1, cache) for cut in CACHED[: 2 if ranks > 1 else 1] for cache in CACHES]
    return cuts


def tokens_of_sums(tables: Mapping[str, Table], hidden: int) -> int:
    """The tokens whose embeddings the sums of all tables take the place of, one behind the other."""
    return -(-sum(table.dim for table in tables.values()) // hidden)


class TableShard(NamedTuple):
    """A part of a table: the rank of a group that has it, its first row and column, and how many of each."""

    rank: int
    first_row: int
    rows: int
    first_column: int
    columns: int


def table_shards(table: Table, placed: TablePlacement, ranks: int, per_node: int) -> list[TableShard]:
    """The shards of a table on a group of so many ranks: equal blocks of rows, the last ones shorter, and equal parts
    of the columns. Of a replicated table every rank has all.
    """
    if placed.cut == "replicated":
        return [TableShard(rank, 0, table.rows, 0, table.dim) for rank in range(ranks)]
    width = {"rows": ranks, "node_rows": per_node, "grid": per_node}.get(placed.cut, 1)
    columns, block = table.dim // placed.parts, -(-table.rows // width)
    starts = [min(table.rows, at * block) for at in range(width + 1)]
    return [
        TableShard(place * width + at, starts[at], starts[at + 1] - starts[at], part * columns, columns)
        for part, place in enumerate(placed.at or (0,))
        for at in range(width)
    ]


def ranks_in_node(size: int, node: int, groups: int, replicas: Replicas) -> int:
    """The ranks of a group that are in one node, of so many ranks in all and in a node; they divide the group's."""
    ranks = size // groups
    most = max(1, min(ranks, min(node, size) // (groups if replicas == "node" else 1)))
    return next(each for each in range(most, 0, -1) if ranks % each == 0)
