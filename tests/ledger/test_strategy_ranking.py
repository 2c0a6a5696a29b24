"""Ranks of strategies within a group."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ledger.strategy_ranking import best_pick_loss, spearman
from tests.ledger.made_predictions import account, case, prediction

some = st.floats(0.01, 100)


def group(measured, predicted, **fields):
    cases = [case(2 + at, seconds=seconds, micro_batch=at + 1, **fields) for at, seconds in enumerate(measured)]
    return account(cases, [], [prediction(seconds) for seconds in predicted]).overall


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_without_ties_it_is_one_less_six_squares(first, second):
    """Spearman's formula of differences of ranks, 1 - 6·Σd²/(n·(n²-1))."""
    squares = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    assert spearman([*zip(first, second, strict=True)]) == pytest.approx(1 - 6 * squares / (6 * 35))


@given(st.lists(st.tuples(some, some), min_size=4, max_size=8))
def test_only_the_order_counts(pairs):
    assert spearman([(a**3, b) for a, b in pairs]) == pytest.approx(spearman(pairs), abs=1e-9)
    assert -1 - 1e-9 <= spearman(pairs) <= 1 + 1e-9


def test_a_tie_by_hand():
    """Ranks 1.5, 1.5, 3, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5."""
    assert spearman([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


def test_a_constant_prediction_orders_nothing():
    found = group([1.0, 2.0, 3.0, 4.0], [1.0] * 4)
    assert found.spearman_median == 0
    assert found.best_pick_loss == pytest.approx(1.5)  # any of four, of which the best takes 1 s


@given(st.lists(st.tuples(some, some), min_size=1))
def test_the_pick_is_never_better_than_the_best(pairs):
    assert best_pick_loss(pairs) >= -1e-12


def test_three_strategies_are_no_ranking():
    assert group([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).ranked_groups == 0
    assert group([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]).ranked_groups == 0
    assert group([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], group="").ranked_groups == 0
    assert group([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]).ranked_groups == 1


def test_repeated_measurements_count_once():
    """Five records of which two are of one configuration: four strategies, and the median of the two."""
    measured = ((1.0, 1), (3.0, 1), (5.0, 2), (7.0, 4), (9.0, 8))  # seconds, tp
    cases = [case(2 + at, seconds=seconds, tp=tp) for at, (seconds, tp) in enumerate(measured)]
    made = [prediction(seconds) for seconds in (1.5, 1.5, 1.0, 3.0, 4.0)]
    found = account(cases, [], made).overall
    assert found.ranked_groups == 1
    assert found.best_pick_loss == pytest.approx(5 / 2 - 1)  # picked 5 s; the best is the median of 1 s and 3 s
    assert account(cases[1:4], [], made[1:4]).overall.ranked_groups == 0


def test_rows_of_unlike_batches_rank_by_what_a_token_costs():
    cases = [case(2 + at, seconds=1.0, micro_batch=1) for at in range(4)]
    cases = [replace(one, setup=replace(one.setup, batch=16 * (at + 1))) for at, one in enumerate(cases)]
    found = account(cases, [], [prediction()] * 4).overall
    assert found.spearman_median == pytest.approx(1)
