"""Where the groups of any later batch lie: few blocks of ranks, so that all groups can be made at load.

Groups of a micro-batch are laid widest first: one that fits a node into the node that it fills best, a wider one onto
whole nodes side by side. Powers of two then begin at multiples of their own size, which are fewer than 2N blocks.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.specs.base import Ranks
from planner.specs.cluster import Cluster


class Pool(NamedTuple):
    """Ranks of one kind, in nodes; the last may be smaller."""

    first: int
    size: int
    node: int

    @property
    def nodes(self) -> list[int]:
        """Ranks of each."""
        return [min(self.node, self.size - at) for at in range(0, self.size, self.node)]


def pools(cluster: Cluster) -> list[Pool]:
    found: list[Pool] = []
    for kind in cluster.ranks:
        found.append(Pool(sum(pool.size for pool in found), kind.count, kind.per_node))
    return found


def blocks(pool: Pool, degrees: Iterable[int]) -> list[Ranks]:
    """Every block that `lay` may give groups of these degrees."""
    found = []
    wide = [degree for degree in degrees if degree > pool.node]
    for degree in degrees:
        if degree > pool.node:
            steps = [-(-other // pool.node) for other in wide if other >= degree]
            begins = {at * pool.node for at in sums([0], steps, len(pool.nodes))}
        else:
            others = [other for other in degrees if degree <= other <= pool.node]
            tails = {other % pool.node for other in wide}
            within = sums([0, *tails], others, pool.node - degree + 1)
            begins = {node + at for node in range(0, pool.size, pool.node) for at in within}
        found += [range(at, at + degree) for at in sorted(begins) if at + degree <= pool.size]
    return [Ranks(pool.first + rank for rank in block) for block in found]


def sums(starts: Iterable[int], steps: Iterable[int], end: int) -> set[int]:
    """What can be reached below `end`."""
    reached = {at for at in starts if at < end}
    for at in range(end):
        if at in reached:
            reached |= {at + step for step in steps if at + step < end}
    return reached


def lay(pool: Pool, degrees: Sequence[int]) -> list[Ranks] | None:
    """Blocks for groups of these degrees, which fall; None when they do not fit the nodes."""
    free, laid = pool.nodes, []
    for degree in degrees:
        at = whole_nodes(free, pool, degree) if degree > pool.node else fullest(free, pool, degree)
        if at is None:
            return None
        laid.append(Ranks(range(pool.first + at, pool.first + at + degree)))
    return laid


def fullest(free: list[int], pool: Pool, degree: int) -> int | None:
    """The begin of a block in the node that has the fewest free ranks, of those with enough."""
    fitting = [node for node in range(len(free)) if free[node] >= degree]
    if not fitting:
        return None
    node = min(fitting, key=lambda node: (free[node], node))
    at = node * pool.node + pool.nodes[node] - free[node]
    free[node] -= degree
    return at


def whole_nodes(free: list[int], pool: Pool, degree: int) -> int | None:
    """The begin of a block over the first nodes that are still free; wide groups come first, so these are the last."""
    count, sizes = -(-degree // pool.node), pool.nodes
    first = next((node for node in range(len(free)) if free[node:] == sizes[node:]), len(free))
    if sum(free[first : first + count]) < degree:
        return None
    left = sum(free[first : first + count]) - degree
    free[first : first + count] = [0] * (count - 1) + [left]
    return first * pool.node
