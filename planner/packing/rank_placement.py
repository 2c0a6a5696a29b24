"""Where groups go on nodes: within one node if they fit, otherwise on whole adjacent nodes.

So no group of at most a node's ranks straddles two nodes, and a group's time does not depend on where it is placed.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.costs import Ints, PackingProblem
from planner.packing.packed_groups import PackedGroup, Packing


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The nodes of all pools, one after another."""

    first_rank: Ints  # (nodes,)
    size: Ints  # (nodes,) ranks
    first_node: Ints  # (shapes,) first node of the shape's pool
    end_node: Ints  # (shapes,) node after its last


def make_nodes(problem: PackingProblem) -> NodeTable:
    """The nodes of a problem's pools as arrays."""
    first: list[int] = []
    size: list[int] = []
    begin: list[int] = []
    for pool in problem.pools:
        begin.append(len(first))
        for start in range(0, pool.ranks, pool.per_node):
            first.append(pool.first + start)
            size.append(min(pool.per_node, pool.ranks - start))
    begin.append(len(first))
    pools = [shape.pool for shape in problem.shapes]
    ranges = [[begin[pool] for pool in pools], [begin[pool + 1] for pool in pools]]
    return NodeTable(*(np.array(column, dtype=np.int64) for column in (first, size, *ranges)))


class FreeNodes:
    """The ranks of one micro-batch that are in no group yet. Ranks are taken and never given back, so each node is
    looked at a few times, however many groups there are.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self.size: list[int] = nodes.size.tolist()
        self.first_rank: list[int] = nodes.first_rank.tolist()
        self.free: list[int] = list(self.size)  # ranks of each node
        # By the first node of a pool: (free ranks, node), rising, of nodes with free ranks and others.
        self.partial: dict[int, list[tuple[int, int]]] = {}
        self.whole_from: dict[int, int] = {}  # by the first node of a pool: no node before has all its ranks free
        self.run_from: dict[int, int] = {}  # by shape: no run of nodes that begins before is long enough

    def place_group(self, shape: int, degree: int) -> int | None:
        """The first rank of a new group, whose ranks are taken; None when it fits nowhere."""
        begin, end = int(self.nodes.first_node[shape]), int(self.nodes.end_node[shape])
        if degree > self.size[begin]:
            return self.place_on_whole_nodes(shape, degree, begin, end)
        best = self.best_fit(degree, begin, end)
        if best is None:
            return None
        first = self.first_rank[best] + self.size[best] - self.free[best]
        self.set_free(best, self.free[best] - degree, begin)
        return first

    def best_fit(self, degree: int, begin: int, end: int) -> int | None:
        """The node with fewest free ranks that are enough, of equal ones the first; None when there is none."""
        partial, last = self.partial.get(begin, []), end - 1
        at = bisect_left(partial, (degree, -1))
        short = self.size[last] < self.size[begin] and self.size[last] == self.free[last] >= degree
        if at < len(partial) and not (short and self.free[last] < partial[at][0]):
            return partial[at][1]
        if short:
            return last
        whole = self.whole_from.get(begin, begin)
        while whole < end and self.free[whole] < self.size[whole]:
            whole += 1
        self.whole_from[begin] = whole
        return whole if whole < end and self.free[whole] >= degree else None

    def place_on_whole_nodes(self, shape: int, degree: int, begin: int, end: int) -> int | None:
        """The first rank of the first run of whole nodes that is long enough."""
        left, run = degree, self.run_from.get(shape, begin)
        for node in range(run, end):
            if self.free[node] < self.size[node]:
                left, run = degree, node + 1
                continue
            left -= self.size[node]
            if left <= 0:
                self.free[run:node] = [0] * (node - run)
                self.set_free(node, -left, begin)
                self.run_from[shape] = node + 1
                return self.first_rank[run]
        self.run_from[shape] = end
        return None

    def set_free(self, node: int, free: int, begin: int) -> None:
        """Leave so many ranks of a node of the pool from node `begin` on free."""
        partial = self.partial.setdefault(begin, [])
        if self.free[node] < self.size[node]:
            del partial[bisect_left(partial, (self.free[node], node))]
        self.free[node] = free
        if free:
            insort(partial, (free, node))


def align_groups(problem: PackingProblem, packed: Packing) -> Packing:
    """A packing whose groups are placed widest first, where they fit so: powers of two on multiples of themselves."""
    micro_batches = [
        place_packing(problem, [[(group.shape, group.items) for group in micro_batch]]) or (micro_batch,)
        for micro_batch in packed
    ]
    return tuple(micro_batch for (micro_batch,) in micro_batches)


def place_packing(
    problem: PackingProblem, micro_batches: Sequence[Sequence[tuple[int, tuple[int, ...]]]]
) -> Packing | None:
    """Place groups of (shape, items) on ranks, widest first; None when they do not fit the nodes so."""
    nodes, packed = make_nodes(problem), []
    for micro_batch in micro_batches:
        free, groups = FreeNodes(nodes), []
        for shape, items in sorted(micro_batch, key=lambda group: -problem.shapes[group[0]].degree):
            first = free.place_group(shape, problem.shapes[shape].degree)
            if first is None:
                return None
            groups.append(PackedGroup(shape, items, first))
        packed.append(tuple(groups))
    return tuple(packed)
