"""Where groups go on nodes: within one node if they fit, otherwise on whole adjacent nodes.

So no group of at most a node's ranks straddles two nodes, and a group's time does not depend on where it is placed.
"""

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


def place_group(nodes: NodeTable, shape: int, degree: int, free: list[int]) -> int | None:
    """The first rank of a new group; None when it fits nowhere. Takes its ranks from `free` (ranks of each node)."""
    begin, end = int(nodes.first_node[shape]), int(nodes.end_node[shape])
    if degree <= nodes.size[begin]:
        fitting = [node for node in range(begin, end) if free[node] >= degree]
        if not fitting:
            return None
        best = min(fitting, key=lambda node: (free[node], node))  # best fit
        first = int(nodes.first_rank[best] + nodes.size[best]) - free[best]
        free[best] -= degree
        return first
    left, run = degree, begin
    for node in range(begin, end):
        if free[node] < nodes.size[node]:
            left, run = degree, node + 1
            continue
        left -= int(nodes.size[node])
        if left <= 0:
            free[run:node] = [0] * (node - run)
            free[node] = -left
            return int(nodes.first_rank[run])
    return None


def align_groups(problem: PackingProblem, packed: Packing) -> Packing:
    """The same groups placed widest first, which puts powers of two on multiples of themselves, where they fit so."""
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
        free, groups = nodes.size.tolist(), []
        for shape, items in sorted(micro_batch, key=lambda group: -problem.shapes[group[0]].degree):
            first = place_group(nodes, shape, problem.shapes[shape].degree, free)
            if first is None:
                return None
            groups.append(PackedGroup(shape, items, first))
        packed.append(tuple(groups))
    return tuple(packed)
