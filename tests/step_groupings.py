"""Small problems of ranks that meet once a step, with offload or without, and what is best in them."""

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from planner.costs.memory.offload import Offloading
from planner.costs.packing_problem import PackingProblem
from planner.packing.balanced import best_balanced, one_item_per_micro_batch
from planner.packing.packed_groups import Packing
from tests.groupings import problems, require_lies_well, with_first

LAYERS = 8


def offloading(most: float) -> Offloading:
    """As much as `most` of every item's activations hides behind its computing."""
    return Offloading(LAYERS, layer_bytes=1.0, head_bytes=0.5, passes=((0.0, most),), bytes_per_second=1.0)


@st.composite
def step_problems(draw, **of_groupings) -> PackingProblem:
    """Those of tests.groupings below ZeRO-3; some items are so long that no group holds them without offloading."""
    problem = replace(draw(problems(**of_groupings)), sync="step", micro_batch_seconds=0.0)
    most = draw(st.sampled_from((None, None, 0.0, 0.4, 1.0)))
    if most is None:
        return problem
    problem = replace(problem, offload=offloading(most))
    for item in draw(st.sets(st.sampled_from(sorted(problem.sizes)), max_size=2)):
        longer = replace(problem, sizes={**problem.sizes, item: problem.sizes[item] * draw(st.integers(2, 4))})
        problem = longer if longer.choices(item) else problem
    return problem


def warm_start(problem: PackingProblem) -> Packing:
    meeting = replace(problem, sync="micro_batch")
    return best_balanced(meeting) or one_item_per_micro_batch(meeting)


def require_possible(problem: PackingProblem, packed: Packing) -> None:
    """Each item once, on a group that holds it; a rank in one group of a row; groups lie as they may."""
    assert sorted(item for row in packed for group in row for item in group.items) == sorted(problem.sizes)
    for row in packed:
        ranks = [r for g in row for r in range(g.first_rank, g.first_rank + problem.shapes[g.shape].degree)]
        assert len({*ranks}) == len(ranks), "a rank is in two groups of a row"
        for group in row:
            require_lies_well(problem, group.shape, group.first_rank)
            assert all(group.shape in problem.choices(item) for item in group.items)
            tokens = sum(problem.sizes[item] for item in group.items)
            alone = len(group.items) == 1 and problem.offload is not None
            assert group.items and (tokens <= problem.shapes[group.shape].room or alone)


def best(problem: PackingProblem) -> float:
    """The least seconds of a step, wherever ranks lie in their pool, and however many items offload what hides.

    Groups in the order in which they begin. One that begins at t takes ranks that were free last before t, so that its
    ranks are neighbours when sorted by when they are done.
    """

    @cache
    def rest(items: frozenset[int], ends: tuple[tuple[float, ...], ...], begun: float) -> float:
        """When the last rank is done; `ends` of ranks, rising, by pool."""
        if not items:
            return max(map(max, ends))
        tried = [
            rest(items - group, after, start)
            for group in subsets(items)
            for number, shape in enumerate(problem.shapes)
            if fits(number, group)
            for start, after in starts(ends, shape.pool, shape.degree, problem.seconds(number, tuple(group)))
            if start >= begun
        ]
        return min(tried, default=float("inf"))

    @cache
    def fits(shape: int, group: frozenset[int]) -> bool:
        tokens = sum(problem.least_tokens(problem.sizes[item]) for item in group)
        return tokens <= problem.shapes[shape].room and all(shape in problem.choices(item) for item in group)

    idle = tuple((0.0,) * pool.ranks for pool in problem.pools)
    return rest(frozenset(problem.sizes), idle, 0.0) + problem.step_seconds


def starts(ends: tuple[tuple[float, ...], ...], pool: int, degree: int, seconds: float):
    """When a group could begin, and when ranks are then done."""
    mine = ends[pool]
    for low in range(len(mine) - degree + 1):
        start = mine[low + degree - 1]
        after = tuple(sorted((*mine[:low], *mine[low + degree :], *[start + seconds] * degree)))
        yield start, (*ends[:pool], after, *ends[pool + 1 :])


def subsets(items: frozenset[int]) -> list[frozenset[int]]:
    """All but the empty one."""
    if not items:
        return []
    return [*with_first(items), *subsets(items - {min(items)})]
