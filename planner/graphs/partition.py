"""Cuts a graph into parts by METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998), through pymetis; and counts
what sampling reaches across parts.

Parts are balanced in nodes and in training nodes: these weigh more, by several factors in turn, and the cut with fewest
edges among those that are even enough is taken.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from planner.extras import require_extra
from planner.graphs.read_graph import Graph, Ints

EVEN = 1.1  # the fullest part over the mean
WEIGHTS = (0, 2, 5, 10, 20)  # of a training node, beside its own 1


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The part of each node, the edges cut, and the fullest part over the mean, of nodes and training nodes."""

    part: Ints
    cut: int
    imbalance: float
    train_imbalance: float

    @property
    def uneven(self) -> float:
        return max(self.imbalance, self.train_imbalance)


def cut_graph(graph: Graph, parts: int, train: Ints) -> Partition:
    """The graph in so many parts. Raises InputError where pymetis is not installed."""
    tried = [cut_by_weight(graph, parts, train, weight) for weight in WEIGHTS]
    return min(tried, key=lambda each: (max(each.uneven, EVEN), each.cut))


def cut_by_weight(graph: Graph, parts: int, train: Ints, weight: int) -> Partition:
    """One cut; `weight`: of a training node, more than of others."""
    weights = np.ones(graph.nodes, dtype=np.int64)
    weights[train] += weight
    part = metis(graph, parts, weights)
    ends = np.repeat(part, graph.degrees)
    cut = int((ends != part[graph.neighbours]).sum()) // 2
    return Partition(part, cut, fullest(part, parts), fullest(part[train], parts))


def metis(graph: Graph, parts: int, weights: Ints | None = None) -> Ints:
    """The part of each node, the same for the same graph. Raises InputError where pymetis is not installed."""
    require_extra("pymetis", "graphs", "loader-order")
    if parts == 1:
        return np.zeros(graph.nodes, dtype=np.int64)
    import pymetis

    adjacency = pymetis.CSRAdjacency(graph.indptr.astype(np.int32), graph.neighbours.astype(np.int32))
    given = None if weights is None else weights.tolist()
    with without_output():
        _, part = pymetis.part_graph(parts, adjacency, vweights=given, options=pymetis.Options(seed=0))
    return np.asarray(part, dtype=np.int64)


@contextmanager
def without_output() -> Iterator[None]:
    """Within it nothing reaches standard output: METIS prints there where parts have about one node each."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C still holds
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def fullest(part: Ints, parts: int) -> float:
    """The fullest part over the mean."""
    return float(np.bincount(part, minlength=parts).max() * parts / max(1, len(part)))


def two_hop_across(graph: Graph, part: Ints, train: Ints) -> tuple[int, int]:
    """Walks of one and of two edges from training nodes that end in another part, and all of them."""
    parts, start = int(part.max()) + 1, np.repeat(np.arange(graph.nodes), graph.degrees)
    within, every = 0, 0
    for own in range(parts):
        inside = np.bincount(start, part[graph.neighbours] == own, graph.nodes)
        both = inside + np.bincount(start, inside[graph.neighbours], graph.nodes)
        within += int(both[train[part[train] == own]].sum())
    degrees = graph.degrees.astype(np.float64)
    every = int((degrees + np.bincount(start, degrees[graph.neighbours], graph.nodes))[train].sum())
    return every - within, every
