"""Groups of layouts of one job, and what choosing by prediction costs in them."""

import dataclasses

import pytest

from benchmarks.layout_regret import TIE, group_figures, layout_groups, over_all, tied
from tests.calibrate.made_cases import case

DEGREES = (1, 2, 4, 8)


def timed(seconds, **changes):
    """One case for each time, over as many degrees of tensor parallelism."""
    cases = [case(0, "made", tp=tp, **changes) for tp in DEGREES[: len(seconds)]]
    return [dataclasses.replace(case, seconds=each) for case, each in zip(cases, seconds, strict=True)]


def test_true_predictions_have_no_regret_and_the_order():
    (group,) = layout_groups(timed((1.0, 2.0, 3.0, 4.0)), (1.0, 2.0, 3.0, 4.0))
    figures = group_figures(group)
    assert (figures["regret"], figures["best_or_tied"], figures["spearman"]) == (0.0, True, 1.0)


def test_the_worst_choice_costs_all_that_there_is_to_lose():
    (group,) = layout_groups(timed((1.0, 2.0, 3.0)), (3.0, 2.0, 1.0))
    figures = group_figures(group)
    assert (figures["regret"], figures["best_or_tied"], figures["spearman"]) == (2.0, False, -1.0)
    assert over_all([group])["regret_of_guessing"] == pytest.approx(1.0)


def test_other_batches_are_other_jobs_and_too_few_layouts_are_none():
    cases = [*timed((1.0, 2.0)), *timed((1.0, 2.0, 3.0), batch=128)]
    assert [len(group) for group in layout_groups(cases, [1.0] * 5)] == [3]


def test_repeated_measurements_count_once_by_their_median():
    cases = timed((1.0, 2.0, 3.0)) + timed((5.0,)) + timed((9.0,))
    (group,) = layout_groups(cases, [1.0] * 5)
    assert sorted(each.measured for each in group) == [2.0, 3.0, 5.0]


def test_times_within_two_percent_are_tied_with_the_least_of_a_run():
    made = tied([(1.0, 10.0), (2.0, 10.0 * (1 + TIE / 2)), (3.0, 10.0 * (1 + 2 * TIE))])
    assert [measured for _, measured in made] == [10.0, 10.0, 10.0 * (1 + 2 * TIE)]
