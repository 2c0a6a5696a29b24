"""Graphs of communities: most edges of a node stay within its own, and degrees follow a power law or are even."""

import numpy as np

from planner.graphs import Graph, graph_of

EXPONENT = 1.5  # of the weights' Pareto law: degrees fall with one more


def community_graph(
    nodes: int, edges: int, *, power: bool = False, mixing: float = 0.05, seed: int = 0, communities: int = 200
) -> Graph:
    """About so many edges, a share `mixing` of them to any community."""
    random = np.random.default_rng(seed)
    weights = (1 - random.random(nodes)) ** (-1 / EXPONENT) if power else np.ones(nodes)
    return of_weights(np.minimum(weights, np.sqrt(nodes)), (edges, communities, mixing), random)


def of_weights(weights: np.ndarray, shape: tuple[int, int, float], random: np.random.Generator) -> Graph:
    """The same of nodes whose degrees are about proportional to their weights (nodes,)."""
    nodes, (edges, communities, mixing) = len(weights), shape
    community = random.integers(communities, size=nodes)
    order = np.argsort(community, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    first = np.searchsorted(community[order], np.arange(communities))
    last = np.searchsorted(community[order], np.arange(communities), side="right")

    def drawn(low: np.ndarray | float, high: np.ndarray | float, count: int) -> np.ndarray:
        at = np.searchsorted(total, low + random.random(count) * (high - low), side="right") - 1
        return order[np.clip(at, 0, nodes - 1)]

    u = drawn(0.0, total[-1], edges)
    v = drawn(total[first[community[u]]], total[last[community[u]]], edges)
    outside = random.random(edges) < mixing
    return graph_of(u, np.where(outside, drawn(0.0, total[-1], edges), v), nodes)
