"""Blocks of ranks on which groups of later batches are placed: few, so that all process groups can be created at load.

Groups of a micro-batch are placed largest first: one that fits a node into the node with the fewest sufficient free
ranks (best fit), a larger one onto adjacent empty nodes. Groups of 2^k ranks then start at multiples of their size:
fewer than 2N blocks.
"""

from collections.abc import Iterable, Sequence

from planner.costs import RankPool
from planner.specs.base import Ranks


def node_sizes(pool: RankPool) -> list[int]:
    """Number of ranks of each node of a pool; the last node may be smaller."""
    return [min(pool.per_node, pool.ranks - at) for at in range(0, pool.ranks, pool.per_node)]


def catalogue_blocks(pool: RankPool, degrees: Iterable[int]) -> list[Ranks]:
    """Every block on which `place_groups` may place groups of these degrees."""
    candidates = []
    wide = [degree for degree in degrees if degree > pool.per_node]
    for degree in degrees:
        if degree > pool.per_node:
            steps = [-(-other // pool.per_node) for other in wide if other >= degree]
            begins = {at * pool.per_node for at in reachable_sums([0], steps, len(node_sizes(pool)))}
        else:
            others = [other for other in degrees if degree <= other <= pool.per_node]
            tails = {other % pool.per_node for other in wide}
            within = reachable_sums([0, *tails], others, pool.per_node - degree + 1)
            begins = {node + at for node in range(0, pool.ranks, pool.per_node) for at in within}
        candidates += [range(at, at + degree) for at in sorted(begins) if at + degree <= pool.ranks]
    return [Ranks(pool.first + rank for rank in block) for block in candidates]


def reachable_sums(starts: Iterable[int], steps: Iterable[int], end: int) -> set[int]:
    """Numbers below `end` that are a start plus any number of steps."""
    reached = {at for at in starts if at < end}
    for at in range(end):
        if at in reached:
            reached |= {at + step for step in steps if at + step < end}
    return reached


def place_groups(pool: RankPool, degrees: Sequence[int]) -> list[Ranks] | None:
    """Blocks for groups of these degrees, in descending order; None when they do not fit the nodes."""
    free, placed = node_sizes(pool), []
    for degree in degrees:
        at = fit_empty_nodes(free, pool, degree) if degree > pool.per_node else fit_fullest_node(free, pool, degree)
        if at is None:
            return None
        placed.append(Ranks(range(pool.first + at, pool.first + at + degree)))
    return placed


def fit_fullest_node(free: list[int], pool: RankPool, degree: int) -> int | None:
    """First rank of a block in the node with the fewest free ranks of those with enough; None if there is none."""
    fitting = [node for node in range(len(free)) if free[node] >= degree]
    if not fitting:
        return None
    node = min(fitting, key=lambda node: (free[node], node))
    at = node * pool.per_node + node_sizes(pool)[node] - free[node]
    free[node] -= degree
    return at


def fit_empty_nodes(free: list[int], pool: RankPool, degree: int) -> int | None:
    """First rank of a block over the first empty nodes, which are at the end as larger groups come first; None if they
    are too few.
    """
    count, sizes = -(-degree // pool.per_node), node_sizes(pool)
    first = next((node for node in range(len(free)) if free[node:] == sizes[node:]), len(free))
    if sum(free[first : first + count]) < degree:
        return None
    left = sum(free[first : first + count]) - degree
    free[first : first + count] = [0] * (count - 1) + [left]
    return first * pool.per_node
