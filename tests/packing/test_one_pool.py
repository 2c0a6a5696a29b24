"""Several kinds of ranks are never worse than one of them alone."""

from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.lines import Line
from planner.costs.step.sequences import Pool, Sequences, Shape
from planner.packing.balanced import best_balanced, one_by_one
from planner.packing.one_pool import best_of_each_pool, only_pool, promised
from planner.packing.packed import worth
from planner.packing.search import search
from planner.verify.bounds import area
from tests.examples import examples
from tests.groupings import best, problems, require_possible


def solvable(problem: Sequences) -> bool:
    return all(problem.choices(item) for item in problem.sizes)


def alone(problem: Sequences) -> list[Sequences]:
    """The problems of single pools that have a solution."""
    return [each for n in range(len(problem.pools)) if solvable(each := only_pool(problem, n))]


@examples(60)
@given(problems(items=25, ranks=(1, 2, 7, 8), pools=3), st.sampled_from([1, 2]))
def test_what_is_kept_is_no_worse_than_any_pool_alone(problem, effort):
    """Even from the worst packing there is, and always possible on all ranks."""
    warm = one_by_one(problem)
    packed, _ = best_of_each_pool(problem, warm, effort)
    require_possible(problem, packed)
    assert worth(problem, packed) <= worth(problem, warm)
    for each in alone(problem) if len(problem.pools) > 1 else []:
        found, _ = search(each, best_balanced(each) or one_by_one(each), effort)
        assert worth(problem, packed) <= worth(each, found) * (1 + 1e-12)


@given(problems(items=4, pools=2))
def test_the_best_on_all_ranks_is_no_worse_than_the_best_on_one_pool(problem):
    """By trying everything; and what a pool promises is never more than it gives."""
    for each in alone(problem):
        least = best(each)
        assert best(problem) <= least * (1 + 1e-12)
        assert promised(each) <= least * (1 + 1e-9)
        assert promised(each) == area(each)


def test_one_pool_is_left_as_it_is():
    line = Line(0.0, 1.0, 0.0)
    problem = Sequences({0: 5, 1: 3}, (Pool(0, 2, 2),), (Shape(1, 0, 10, line),), 0.0, 0.0, {})
    warm = one_by_one(problem)
    assert best_of_each_pool(problem, warm, 2) == (warm, 0)


def test_a_pool_much_slower_than_the_other_stays_idle():
    """A rank that takes a hundred times as long helps nobody: all go to the other, beside each other."""
    shapes = (Shape(1, 0, 100, Line(0.0, 100.0, 0.0)), Shape(1, 1, 100, Line(0.0, 1.0, 0.0)))
    problem = Sequences(dict.fromkeys(range(6), 10), (Pool(0, 2, 2), Pool(2, 2, 2)), shapes, 0.0, 0.0, {})
    packed, _ = best_of_each_pool(problem, one_by_one(problem), 1)
    assert {group.shape for micro_batch in packed for group in micro_batch} == {1}
    assert worth(problem, packed) == best(problem) == 30.0
