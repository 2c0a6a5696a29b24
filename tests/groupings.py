"""Small problems of grouping sequences, and what the best grouping of one is worth, by trying them all."""

from functools import cache
from itertools import combinations

from hypothesis import strategies as st

from planner.costs.lines import Line
from planner.costs.sequences import Sequences


@st.composite
def problems(draw, items: int = 5, ranks: tuple[int, ...] = (1, 2, 3, 4), scale: float = 1.0) -> Sequences:
    """Any degrees that exist, lines that need not favour wide groups, some items fixed."""
    count = draw(st.sampled_from(ranks))
    degrees = tuple(sorted(draw(st.sets(st.integers(1, count), min_size=1, max_size=3))))
    cap = draw(st.sampled_from((50, 200, 10**6)))
    lengths = st.integers(1, min(400, cap * degrees[-1]))
    sizes = {3 * i + 1: size for i, size in enumerate(draw(st.lists(lengths, min_size=1, max_size=items)))}
    seconds = st.integers(0, 100).map(lambda n: scale * n / 1000)
    lines = {
        degree: Line(draw(seconds) * 1e-4 / degree, (draw(seconds) + 1e-3 * scale) * 0.01 / degree, draw(seconds))
        for degree in degrees
    }
    problem = Sequences(sizes, count, degrees, lines, cap, draw(seconds), draw(seconds), {})
    fixed = {item: draw(st.sampled_from([None, None, *problem.choices(item)])) for item in sizes}
    return Sequences(
        sizes=sizes,
        ranks=count,
        degrees=degrees,
        lines=lines,
        cap=cap,
        row_seconds=problem.row_seconds,
        step_seconds=problem.step_seconds,
        fixed={item: degree for item, degree in fixed.items() if degree},
    )


def best(problem: Sequences) -> float:
    """The least seconds of a step: every set of items as one micro-batch, every micro-batch in every set of groups."""

    @cache
    def makespan(items: frozenset[int], ranks: int) -> float:
        if not items:
            return 0.0
        tried = [
            max(problem.seconds(degree, tuple(group)), makespan(items - group, ranks - degree))
            for group in with_first(items)
            for degree in problem.degrees
            if degree <= ranks and possible(problem, group, degree)
        ]
        return min(tried, default=float("inf"))

    @cache
    def rest(items: frozenset[int]) -> float:
        if not items:
            return problem.step_seconds
        return min(makespan(row, problem.ranks) + problem.row_seconds + rest(items - row) for row in with_first(items))

    return rest(frozenset(problem.sizes))


def with_first(items: frozenset[int]) -> list[frozenset[int]]:
    """Every subset that holds the first item: each partition is then met once."""
    first, *others = sorted(items)
    return [frozenset((first, *chosen)) for k in range(len(others) + 1) for chosen in combinations(others, k)]


def possible(problem: Sequences, group: frozenset[int], degree: int) -> bool:
    fits = sum(problem.sizes[item] for item in group) <= problem.cap * degree
    return fits and all(problem.fixed.get(item, degree) == degree for item in group)
