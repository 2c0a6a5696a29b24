"""Orders of training nodes, and what their batches read: the distinct nodes that neighbour sampling reaches.

random   every node once, in any order.
bfs-S    S breadth-first sequences from random roots, each rotated by a random offset; batches take from them in turn
         (BGL, NSDI 2023).
blocks-K of K blocks of a partition at a time the nodes in any order, blocks in any order (as Cluster-GCN, arXiv
         1905.07953, takes several clusters at a time).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator

from planner.graphs.read_graph import Graph, Ints


def random_order(train: Ints, random: Generator) -> Ints:
    """Training nodes in any order."""
    return random.permutation(train)


def block_order(train: Ints, block: Ints, together: int, random: Generator) -> Ints:
    """Training nodes of `together` blocks at a time; `block`: of every node."""
    place = random.permutation(int(block.max()) + 1) // together
    return train[np.lexsort((random.random(len(train)), place[block[train]]))]


def bfs_order(graph: Graph, train: Ints, sequences: int, random: Generator) -> Ints:
    """Training nodes of several breadth-first sequences in turn; each node where its first sequence has it."""
    trained = np.zeros(graph.nodes, dtype=bool)
    trained[train] = True
    rows = []
    for _ in range(sequences):
        visited = breadth_first(graph, int(random.integers(graph.nodes)), random)
        rows.append(np.roll(visited[trained[visited]], int(random.integers(len(train)))))
    turns = np.stack(rows, axis=1).ravel()
    _, first = np.unique(turns, return_index=True)
    order: Ints = turns[np.sort(first)]
    return order


def breadth_first(graph: Graph, root: int, random: Generator) -> Ints:
    """All nodes in breadth-first order from a root, other components behind, each from its own root."""
    seen = np.zeros(graph.nodes, dtype=bool)
    layers, unseen, at = list[Ints](), random.permutation(graph.nodes), 0
    frontier = np.array([root])
    seen[root] = True
    while len(frontier):
        layers.append(frontier)
        reached = neighbours_of(graph, frontier)
        _, first = np.unique(reached, return_index=True)
        frontier = reached[np.sort(first)]
        frontier = frontier[~seen[frontier]]
        if not len(frontier):
            left = np.flatnonzero(~seen[unseen[at:]])[:1]
            at += int(left[0]) if len(left) else 0
            frontier = unseen[at : at + 1] if len(left) else frontier
        seen[frontier] = True
    return np.concatenate(layers)


def neighbours_of(graph: Graph, nodes: Ints) -> Ints:
    """The neighbours of nodes, one node's after another's."""
    counts = graph.degrees[nodes]
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    found: Ints = graph.neighbours[np.repeat(graph.indptr[nodes], counts) + inside]
    return found


def batch_reads(
    graph: Graph, order: Ints, size: int, fanouts: Sequence[int], seed: int, most: int | None = None
) -> Iterator[Ints]:
    """Of each batch of an order, or of the first `most`, the distinct nodes whose rows it reads, rising."""
    for number, first in enumerate(range(0, len(order), size)):
        if most is not None and number >= most:
            return
        yield sampled_nodes(graph, order[first : first + size], fanouts, np.random.default_rng((seed, number)))


def sampled_nodes(graph: Graph, seeds: Ints, fanouts: Sequence[int], random: Generator) -> Ints:
    """Training nodes, and all that sampling at most so many neighbours of each, layer by layer, reaches."""
    every, frontier = seeds, seeds
    for fanout in fanouts:
        frontier = np.unique(sampled_neighbours(graph, frontier, fanout, random))
        every = np.union1d(every, frontier)
    return np.unique(every)


def sampled_neighbours(graph: Graph, nodes: Ints, fanout: int, random: Generator) -> Ints:
    """Of each node all neighbours, or `fanout` distinct ones of more, each set as likely (Floyd, CACM 30(9), 1987)."""
    degrees = graph.degrees[nodes]
    if not (degrees > fanout).any():
        return neighbours_of(graph, nodes)
    many = nodes[degrees > fanout]
    counts = graph.degrees[many]
    chosen = np.full((len(many), fanout), -1, dtype=np.int64)
    for at in range(fanout):
        last = counts - fanout + at
        drawn = (random.random(len(many)) * (last + 1)).astype(np.int64)
        taken = (chosen[:, :at] == drawn[:, None]).any(axis=1)
        chosen[:, at] = np.where(taken, last, drawn)
    few = neighbours_of(graph, nodes[degrees <= fanout])
    return np.concatenate([few, graph.neighbours[(graph.indptr[many][:, None] + chosen).ravel()]])
