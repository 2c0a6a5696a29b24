"""Rows that are moved to a GPU whose cache holds some: misses of batches, by kind of cache.

A batch is looked up as a whole, and what it misses is put into the cache behind it, in rising order of nodes. FIFO lets
go what came in first (BGL), LRU what was not read for longest; static caches hold the same rows throughout: those of
highest degree (PaGraph, SoCC 2020), or those that a presample read most often (GNNLab, EuroSys 2022).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.graphs.read_graph import Graph, Ints

DYNAMIC, STATIC = ("fifo", "lru"), ("degree", "presample")
CACHES = (*DYNAMIC, *STATIC)


def misses(cache: str, batches: Iterable[Ints], capacity: int, score: NDArray[np.float64]) -> list[int]:
    """Rows that each batch moves; `score`: by node, what static caches keep most of."""
    if cache in STATIC:
        held = np.zeros(len(score), dtype=bool)
        held[highest(score, capacity)] = True
        return [int((~held[nodes]).sum()) for nodes in batches]
    return dynamic_misses(batches, capacity, len(score), renews=cache == "lru")


def dynamic_misses(batches: Iterable[Ints], capacity: int, nodes: int, renews: bool) -> list[int]:
    """Misses of a cache that holds the rows with the latest stamps; `renews`: whether each read stamps a row anew."""
    stamps, latest, moved = np.full(nodes, -1, dtype=np.int64), 0, []
    oldest = 0  # the least stamp that is held
    for batch in batches:
        missed = batch[stamps[batch] < oldest] if capacity else batch
        moved.append(len(missed))
        stamped = np.concatenate([batch[stamps[batch] >= oldest], missed]) if renews else missed
        stamps[stamped] = np.arange(latest, latest + len(stamped))
        latest += len(stamped)
        if renews:
            held = stamps[stamps >= oldest]
            oldest = int(np.partition(held, -capacity)[-capacity]) if 0 < capacity < len(held) else oldest
        else:
            oldest = max(0, latest - capacity)
    return moved


def highest(score: NDArray[np.float64], count: int) -> Ints:
    """The nodes of highest score, of equal ones the first."""
    return np.argsort(-score, kind="stable")[:count]


def static_score(cache: str, graph: Graph, presampled: Sequence[Ints]) -> NDArray[np.float64]:
    """By node, its degree, or how often a presample reads it; of those it never reads, the higher degree first."""
    degrees = graph.degrees.astype(np.float64)
    if cache != "presample":
        return degrees
    reads = np.bincount(np.concatenate([*presampled, np.zeros(0, np.int64)]), minlength=graph.nodes)
    score: NDArray[np.float64] = reads + degrees / (degrees.max(initial=1.0) + 1.0)
    return score
