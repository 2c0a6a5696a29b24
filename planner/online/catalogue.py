"""Where the groups of any later batch lie: few blocks of ranks, so that all groups can be made at load.

Groups of a micro-batch are laid widest first: one that fits a node into the node that it fills best, a wider one onto
whole nodes side by side. Powers of two then begin at multiples of their own size, which are fewer than 2N blocks.
"""

from collections.abc import Iterable, Sequence

from planner.costs.step.sequences import Pool
from planner.specs.base import Ranks


def nodes(pool: Pool) -> list[int]:
    """Ranks of each; the last node may be smaller."""
    return [min(pool.per_node, pool.ranks - at) for at in range(0, pool.ranks, pool.per_node)]


def blocks(pool: Pool, degrees: Iterable[int]) -> list[Ranks]:
    """Every block that `lay` may give groups of these degrees."""
    found = []
    wide = [degree for degree in degrees if degree > pool.per_node]
    for degree in degrees:
        if degree > pool.per_node:
            steps = [-(-other // pool.per_node) for other in wide if other >= degree]
            begins = {at * pool.per_node for at in sums([0], steps, len(nodes(pool)))}
        else:
            others = [other for other in degrees if degree <= other <= pool.per_node]
            tails = {other % pool.per_node for other in wide}
            within = sums([0, *tails], others, pool.per_node - degree + 1)
            begins = {node + at for node in range(0, pool.ranks, pool.per_node) for at in within}
        found += [range(at, at + degree) for at in sorted(begins) if at + degree <= pool.ranks]
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
    free, laid = nodes(pool), []
    for degree in degrees:
        at = whole_nodes(free, pool, degree) if degree > pool.per_node else fullest(free, pool, degree)
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
    at = node * pool.per_node + nodes(pool)[node] - free[node]
    free[node] -= degree
    return at


def whole_nodes(free: list[int], pool: Pool, degree: int) -> int | None:
    """The begin of a block over the first nodes that are still free; wide groups come first, so these are the last."""
    count, sizes = -(-degree // pool.per_node), nodes(pool)
    first = next((node for node in range(len(free)) if free[node:] == sizes[node:]), len(free))
    if sum(free[first : first + count]) < degree:
        return None
    left = sum(free[first : first + count]) - degree
    free[first : first + count] = [0] * (count - 1) + [left]
    return first * pool.per_node
