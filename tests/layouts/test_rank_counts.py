"""Fewer ranks that divide better: which they are."""

from hypothesis import given
from hypothesis import strategies as st

from planner.layouts.space.rank_counts import rank_counts
from planner.specs.base import Ranks
from planner.specs.parallelism import Parallelism
from tests.examples import examples

OPEN = Parallelism()


def powers_of_two(count: int) -> int:
    """The largest power of two that divides a number."""
    return count & -count


@given(st.integers(1, 2000))
@examples(100)
def test_each_divides_better_than_all_larger_ones(size):
    counts = [*rank_counts(size, OPEN)]
    least = size - max(7, size // 8)
    better = [
        n
        for n in range(max(1, least), size + 1)
        if all(powers_of_two(n) > powers_of_two(m) for m in range(n + 1, size + 1))
    ]
    assert counts == better[::-1] and counts[0] == size


def test_fixed_replicas_and_fixed_ranks_say_how_many():
    assert [*rank_counts(34, Parallelism(dp=17))] == [34]
    assert [*rank_counts(34, Parallelism(ranks=Ranks(range(20))))] == [20]
