"""The lower hull of what sets of parts free and take: no mixture of sets takes less."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.layouts.least_recomputation import on_lower_hull
from tests.examples import examples

POINTS = st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 9.0)), min_size=1, max_size=6)


@given(POINTS, st.floats(0.0, 1.0))
@examples(200)
def test_no_mixture_takes_less(points, needed):
    """Of two sets at most, as a program of two rows has no more at its least."""
    each = [(0.0, 0.0), *points]
    most = max(freed for freed, _ in each)
    needed = min(needed, most)
    mixed = [taken for freed, taken in each if freed >= needed]
    for one, other in combinations(each, 2):
        low, high = sorted((one, other))
        if low[0] < needed <= high[0]:
            share = (needed - low[0]) / (high[0] - low[0])
            mixed.append(low[1] + share * (high[1] - low[1]))
    freed, taken = (np.array(axis)[:, None] for axis in zip(*points, strict=True))
    assert on_lower_hull(freed, taken, np.array([needed]))[0] <= min(mixed) * (1 + 1e-6) + 1e-9


def test_it_is_reached_by_two_sets():
    freed, taken = np.array([[0.2], [0.5], [1.0]]), np.array([[0.1], [2.0], [3.1]])
    assert on_lower_hull(freed, taken, np.array([0.6]))[0] == pytest.approx(0.1 + (3.1 - 0.1) / 0.8 * 0.4)
    assert on_lower_hull(freed, taken, np.array([0.1]))[0] == pytest.approx(0.05)
