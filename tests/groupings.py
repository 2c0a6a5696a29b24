"""Small problems of grouping sequences, what is possible in them, and what is best, by trying everything."""

from functools import cache
from itertools import combinations, pairwise
from random import Random

from hypothesis import strategies as st

from planner.costs.cost_lines import CostLine, RingTerm
from planner.costs.packing_problem import GroupShape, PackingProblem, RankPool
from planner.costs.packing_table import packing_table
from planner.packing.balanced import best_balanced, one_item_per_micro_batch, pack_longest_first, step_lower_bounds
from planner.packing.packed_groups import Packing, canonical_order, packing_seconds
from planner.packing.rank_placement import place_packing

# --------------------------------------------------------------------------------------------------- problems


def one_pool(
    sizes, ranks: int, lines: dict[int, CostLine], cap: int = 10**6, per_node: int = 0, **rest
) -> PackingProblem:
    """Ranks of one kind, on one node unless told: a line for each degree. `rest`: of PackingProblem."""
    return PackingProblem(
        sizes=sizes if isinstance(sizes, dict) else dict(enumerate(sizes)),
        pools=(RankPool(0, ranks, per_node or ranks),),
        shapes=tuple(GroupShape(degree, 0, cap, line) for degree, line in sorted(lines.items())),
        **{"micro_batch_seconds": 0.0, "step_seconds": 0.0, "fixed": {}, **rest},
    )


def simple(sizes, ranks: int, degrees: tuple[int, ...], cap: int = 10**6, **rest) -> PackingProblem:
    """A group of degree d takes its tokens over d seconds."""
    return one_pool(sizes, ranks, {degree: CostLine(0.0, 1.0 / degree, 0.0) for degree in degrees}, cap, **rest)


@st.composite
def problems(
    draw, items: int = 5, ranks: tuple[int, ...] = (1, 2, 3, 4), scale: float = 1.0, nodes: bool = True, pools: int = 2
) -> PackingProblem:
    """Any degrees that exist, lines that need not favour wide groups, rings, nodes that degrees need not fill, equal
    sizes, some items fixed. Without `nodes`, all ranks of a pool are on one."""
    seconds = st.integers(0, 100).map(lambda n: scale * n / 1000)
    found = tuple(draw_pools(draw, ranks, nodes, draw(st.integers(1, pools))))
    caps = [draw(st.sampled_from((50, 200, 10**6))) for _ in found]
    possible = [(degree, number) for number, pool in enumerate(found) for degree in range(1, pool.ranks + 1)]
    chosen = draw(st.sets(st.sampled_from(possible), min_size=1, max_size=4))
    shapes = tuple(GroupShape(d, pool, caps[pool], draw_line(draw, seconds, scale, d)) for d, pool in sorted(chosen))
    lengths = st.integers(1, min(400, max(shape.room for shape in shapes)))
    if draw(st.booleans()):
        lengths = st.sampled_from(draw(st.lists(lengths, min_size=1, max_size=2)))
    sizes = {3 * i + 1: size for i, size in enumerate(draw(st.lists(lengths, min_size=1, max_size=items)))}
    free = PackingProblem(sizes, found, shapes, draw(seconds), draw(seconds), {})
    degrees = {item: sorted({shapes[choice].degree for choice in free.choices(item)}) for item in sizes}
    fixed = {item: draw(st.sampled_from([None, None, *degrees[item]])) for item in sizes}
    fixed = {item: degree for item, degree in fixed.items() if degree}
    return PackingProblem(sizes, found, shapes, free.micro_batch_seconds, free.step_seconds, fixed)


def draw_pools(draw, ranks: tuple[int, ...], nodes: bool, count: int):
    first = draw(st.sampled_from((0, 0, 5)))
    for _ in range(count):
        size = draw(st.sampled_from(ranks))
        yield RankPool(first, size, draw(st.integers(1, size + 1)) if nodes else size)
        first += size


def draw_line(draw, seconds, scale: float, degree: int) -> CostLine:
    quad, lin = draw(seconds) * 1e-4 / degree, (draw(seconds) + 1e-3 * scale) * 0.01 / degree
    rings = (RingTerm(draw(seconds) * 0.01, quad),) if draw(st.integers(0, 3)) == 0 else ()
    return CostLine(quad, lin, draw(seconds), rings=rings)


# ------------------------------------------------------------------------------------------- what is possible


def require_possible(problem: PackingProblem, packed: Packing) -> None:
    """Each item once, on shapes that hold it; every rank in one group of a micro-batch; groups lie as they may."""
    assert sorted(item for row in packed for group in row for item in group.items) == sorted(problem.sizes)
    for row in packed:
        for group in row:
            assert group.items and holds(problem, group.shape, group.items)
            require_lies_well(problem, group.shape, group.first_rank)
        spans = sorted((group.first_rank, group.first_rank + problem.shapes[group.shape].degree) for group in row)
        assert all(one[1] <= two[0] for one, two in pairwise(spans)), "a rank is in two groups"


def require_lies_well(problem: PackingProblem, shape: int, first: int) -> None:
    """In its pool: within a node if it fits on one, else from the first rank of a node on."""
    degree, pool = problem.shapes[shape].degree, problem.pools[problem.shapes[shape].pool]
    start = first - pool.first
    assert start >= 0 and start + degree <= pool.ranks
    if degree <= min(pool.per_node, pool.ranks):
        assert start // pool.per_node == (start + degree - 1) // pool.per_node, "a group straddles two nodes"
    else:
        assert start % pool.per_node == 0, "a wide group begins within a node"


def holds(problem: PackingProblem, shape: int, items) -> bool:
    fits = sum(problem.sizes[item] for item in items) <= problem.shapes[shape].room
    return fits and all(shape in problem.choices(item) for item in items)


def fits_on_nodes(problem: PackingProblem, shapes: tuple[int, ...]) -> bool:
    """Whether groups of these shapes can lie beside each other: every place of every group is tried."""
    shapes = tuple(sorted(shapes, key=lambda shape: -problem.shapes[shape].degree))  # wide ones find whole nodes
    return all(
        lie(pool, [problem.shapes[s].degree for s in shapes if problem.shapes[s].pool == number], nodes_of(pool))
        for number, pool in enumerate(problem.pools)
    )


def nodes_of(pool: RankPool) -> tuple[int, ...]:
    """The ranks of each node."""
    return tuple(min(pool.per_node, pool.ranks - start) for start in range(0, pool.ranks, pool.per_node))


def lie(pool: RankPool, degrees: list[int], free: tuple[int, ...]) -> bool:
    """Whether groups of falling degrees have room on nodes with so many free ranks."""
    if not degrees:
        return True
    degree, *rest = degrees
    if degree > sum(free):
        return False
    if degree <= min(pool.per_node, pool.ranks):
        after = {(*free[:i], left - degree, *free[i + 1 :]) for i, left in enumerate(free) if left >= degree}
    else:
        after = {taken for i in range(len(free)) if (taken := without_run(pool, free, i, degree))}
    return any(lie(pool, rest, left) for left in after)


def without_run(pool: RankPool, free: tuple[int, ...], start: int, degree: int) -> tuple[int, ...] | None:
    """Free ranks after a group that begins with a node takes this one and those behind it."""
    after = list(free)
    for node in range(start, len(free)):
        if free[node] < nodes_of(pool)[node]:
            return None
        taken = min(degree, free[node])
        after[node], degree = free[node] - taken, degree - taken
        if not degree:
            return tuple(after)
    return None


def any_packing(problem: PackingProblem, chance: Random) -> Packing:
    """Items in random order, each to a random open group with room, or to a new one of any shape."""
    rows: list[list[tuple[int, list[int]]]] = []  # micro-batches of (shape, items)
    for item in chance.sample(sorted(problem.sizes), len(problem.sizes)):
        opened = [items for row in rows for shape, items in row if holds(problem, shape, [*items, item])]
        if opened and chance.random() < 0.7:
            chance.choice(opened).append(item)
            continue
        group = (chance.choice(problem.choices(item)), [item])
        free = [row for row in rows if place_packing(problem, [[(s, tuple(i)) for s, i in [*row, group]]])]
        if free and chance.random() < 0.8:
            chance.choice(free).append(group)
        else:
            rows.append([group])
    packed = place_packing(problem, [[(shape, tuple(items)) for shape, items in row] for row in rows])
    assert packed
    return canonical_order(packed, problem)


def warm_start(problem: PackingProblem) -> Packing:
    """What a search begins with."""
    return best_balanced(problem) or one_item_per_micro_batch(problem)


# ----------------------------------------------------------------------------------------------- what is best


def best_of_shape(problem: PackingProblem, shape: int) -> Packing | None:
    """The best packing over numbers of micro-batches with one shape; None when it cannot hold every item."""
    table = packing_table(problem)
    candidates = [
        packed
        for _, _, micro_batches in step_lower_bounds(table, shape)
        if (packed := pack_longest_first(table, shape, micro_batches))
    ]
    return min(candidates, key=lambda packed: packing_seconds(problem, packed), default=None)


def best(problem: PackingProblem) -> float:
    """The least seconds of a step: every set of items as one micro-batch, every micro-batch in every set of groups."""
    fits = cache(lambda shapes: fits_on_nodes(problem, shapes))

    @cache
    def makespan(items: frozenset[int], beside: tuple[int, ...]) -> float:
        """Beside groups of these shapes."""
        if not items:
            return 0.0
        tried = [
            max(problem.seconds(shape, tuple(group)), makespan(items - group, shapes))
            for group in with_first(items)
            for shape in range(len(problem.shapes))
            if holds(problem, shape, group) and fits(shapes := tuple(sorted((*beside, shape))))
        ]
        return min(tried, default=float("inf"))

    @cache
    def rest(items: frozenset[int]) -> float:
        if not items:
            return problem.step_seconds
        return min(makespan(row, ()) + problem.micro_batch_seconds + rest(items - row) for row in with_first(items))

    return rest(frozenset(problem.sizes))


def with_first(items: frozenset[int]) -> list[frozenset[int]]:
    """Every subset that holds the first item: each partition is then met once."""
    first, *others = sorted(items)
    return [frozenset((first, *chosen)) for k in range(len(others) + 1) for chosen in combinations(others, k)]
