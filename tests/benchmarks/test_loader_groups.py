"""Samples change places within their group alone, and what they bring is even over its ranks."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.loader_groups import evenly_filled, largest_differences, reorder_within_groups
from tests.examples import examples


def by_rank(seconds, ranks: int):
    return np.asarray(seconds, dtype=float).reshape(ranks, -1).sum(axis=1)


@examples(60)
@given(st.integers(1, 20), st.integers(1, 6), st.sampled_from([1, 2, 8]), st.randoms(use_true_random=False))
def test_it_is_a_permutation_within_groups_and_no_group_gets_worse(ranks, room, group, chance):
    seconds = np.array([chance.choice([0, 0, 1, 5, 9, 40]) + chance.random() for _ in range(ranks * room)])
    order = reorder_within_groups(seconds, ranks, group)
    assert sorted(order.tolist()) == [*range(len(seconds))]
    assert (order // (room * group) == np.arange(len(seconds)) // (room * group)).all()
    before, after = by_rank(seconds, ranks), by_rank(seconds[order], ranks)
    for first in range(0, ranks, group):
        own = slice(first, first + group)
        assert after[own].max() <= before[own].max() * (1 + 1e-9)
        assert after[own].sum() == pytest.approx(before[own].sum())


@examples(30)
@given(st.lists(st.integers(0, 30), min_size=6, max_size=6), st.sampled_from([2, 3]))
def test_few_samples_are_within_a_third_of_the_best_division(loads, bins):
    seconds = np.array(loads, dtype=float)
    best = min(by_rank(seconds[list(order)], bins).max() for order in permutations(range(6)))
    for found in (evenly_filled(seconds, bins), largest_differences(seconds, bins)):
        assert np.bincount(found, minlength=bins).tolist() == [6 // bins] * bins
    assert best <= np.bincount(evenly_filled(seconds, bins), seconds, minlength=bins).max() <= best * 4 / 3 + 1e-9


def test_differences_by_hand():
    """8, 7, 6, 5, 4, 3 over two: of the pairs (8, 7), (6, 5), (4, 3), which all differ by 1, the first two join to
    13, 13, and those with 4, 3 to 17, 16.
    """
    seconds = np.array([8.0, 7.0, 6.0, 5.0, 4.0, 3.0])
    found = largest_differences(seconds, 2)
    assert sorted(np.bincount(found, seconds).tolist()) == [16.0, 17.0]


def test_eight_samples_a_rank_are_even_within_a_tenth():
    chance, over = np.random.default_rng(0), []
    for _ in range(10):
        seconds = chance.lognormal(0.0, 0.5, 64 * 8)
        for loads in by_rank(seconds[reorder_within_groups(seconds, 64)], 64).reshape(-1, 8):
            over.append(loads.max() / loads.mean())
    assert max(over) <= 1.10


def test_samples_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="7 samples do not divide over 2 ranks"):
        reorder_within_groups(np.ones(7), 2)
    assert reorder_within_groups(np.zeros(0), 4).tolist() == []
