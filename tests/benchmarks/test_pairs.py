"""The interval of a median: between two of the ratios, with at most 2.5 % on either side."""

from math import comb

import pytest

from benchmarks.pairs import interval


@pytest.mark.parametrize("count", [6, 8, 12, 29, 30])
def test_the_median_is_outside_with_at_most_5_percent(count):
    low, high = interval([1 + number for number in reversed(range(count))])  # the ratio less 1 is its place
    assert low + high == count - 1
    below = [sum(comb(count, k) for k in range(int(low) + more)) / 2**count for more in (1, 2)]
    assert below[0] <= 0.025 < below[1]  # no narrower interval would do


def test_of_30_it_is_the_tenth_to_the_twenty_first():
    assert interval(range(1, 31)) == [9, 20]


def test_few_have_none():
    assert [interval([1.0] * count) for count in range(6)] == [None] * 6
