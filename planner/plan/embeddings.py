"""Where the embedding tables of a plan are: how each is cut, and over which ranks of its group."""

from planner.specs.base import Count, Indices, Name, RankCount, Share, Spec
from planner.specs.tables import Cut, Replicas


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


def ranks_in_node(size: int, node: int, groups: int, replicas: Replicas) -> int:
    """The ranks of a group that are in one node, of so many ranks in all and in a node; they divide the group's."""
    ranks = size // groups
    most = max(1, min(ranks, min(node, size) // (groups if replicas == "node" else 1)))
    return next(each for each in range(most, 0, -1) if ranks % each == 0)
