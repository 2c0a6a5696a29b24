"""Loads over bins: longest first within its guarantee, exchanges never for the worse, rooms kept."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.packing import exchange_loads, longest_first
from tests.examples import examples

LOADS = st.lists(st.integers(1, 40), min_size=1, max_size=7)


def fullest(loads, bins, start) -> float:
    return float((start + np.bincount(bins, loads, minlength=len(start))).max())


@examples(60)
@given(LOADS, st.integers(1, 3))
def test_longest_first_is_within_a_third_of_the_optimum_and_exchanges_make_it_no_worse(loads, count):
    loads, start = np.array(loads, dtype=float), np.zeros(count)
    best = min(fullest(loads, np.array(bins), start) for bins in product(range(count), repeat=len(loads)))
    bins = longest_first(loads, start)
    first = fullest(loads, bins, start)
    assert best <= first <= best * (4 / 3 - 1 / (3 * count)) + 1e-9
    exchanged = exchange_loads(np.repeat(loads[:, None], count, axis=1), bins, start, 100)
    assert best <= fullest(loads, exchanged, start) <= first


@examples(60)
@given(LOADS, st.integers(2, 4), st.lists(st.integers(0, 50), min_size=4, max_size=4))
def test_exchanges_end_where_no_move_and_no_swap_helps(loads, count, begun):
    loads, start = np.array(loads, dtype=float), np.array(begun[:count], dtype=float)
    bins = exchange_loads(np.repeat(loads[:, None], count, axis=1), np.zeros(len(loads), np.int64), start, 1000)
    filled = start + np.bincount(bins, loads, minlength=count)
    full = int(filled.argmax())
    for one in np.flatnonzero(bins == full):
        assert all(
            max(filled[full] - loads[one], filled[to] + loads[one]) >= filled[full] for to in range(count) if to != full
        )
        for other in np.flatnonzero(bins != full):
            less = loads[one] - loads[other]
            assert max(filled[full] - less, filled[bins[other]] + less) >= filled[full]


@examples(40)
@given(st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_rooms_are_kept(count, room, chance):
    loads = np.array([chance.randint(1, 30) for _ in range(count * room)], dtype=float)
    bins = longest_first(loads, np.zeros(count), room)
    seconds = np.repeat(loads[:, None], count, axis=1)
    after = exchange_loads(seconds, bins, np.zeros(count), 100, may_move=False)
    assert np.bincount(bins, minlength=count).tolist() == np.bincount(after, minlength=count).tolist() == [room] * count


def test_a_load_goes_to_no_bin_that_cannot_take_it():
    seconds = np.array([[4.0, np.inf], [4.0, np.inf], [1.0, 9.0]])
    assert exchange_loads(seconds, np.zeros(3, np.int64), np.zeros(2), 10).tolist() == [0, 0, 0]
