"""The choice among predictions of which some are surer: the least expected regret, and what may not matter to it."""

from itertools import product
from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.plan.plan_file import Plan
from planner.scoring import least_expected, nearest_run, passed_over, plan_doubt
from planner.scoring.expected_seconds import HALF_OF_80, doubt_at
from planner.specs.base import with_fields
from planner.specs.parallelism import Parallelism

GOLDEN = Path(__file__).parents[1] / "golden" / "parallel_search" / "llama-3-8b-h100x64" / "plan.yaml"
SECONDS, DOUBTS = st.floats(0.1, 10.0), st.floats(1.0, 1.5)
CANDIDATES = st.lists(st.tuples(SECONDS, DOUBTS), min_size=1, max_size=6)
FACTORS = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=3)  # by which a prediction may be off, equally likely


def choice(candidates):
    """The place of the one that is chosen."""
    places = range(len(candidates))
    return least_expected(places, lambda n: candidates[n][0], lambda n: candidates[n][1])


def expected(candidate):
    seconds, doubt = candidate
    return seconds * doubt


@given(st.lists(st.tuples(SECONDS, FACTORS), min_size=2, max_size=4))
def test_no_choice_has_less_expected_regret(candidates):
    """Every outcome of small discrete errors, of mean 1 or more, as of factors whose median is 1."""
    known = []
    for seconds, factors in candidates:
        mean = sum(factors) / len(factors)
        known.append((seconds, [each / min(1.0, mean) for each in factors]))
    outcomes = [*product(*([seconds * each for each in factors] for seconds, factors in known))]
    regrets = [sum(each[n] - min(each) for each in outcomes) / len(outcomes) for n in range(len(known))]
    chosen = choice([(seconds, sum(factors) / len(factors)) for seconds, factors in known])
    assert regrets[chosen] <= min(regrets) + 1e-9


@given(CANDIDATES)
def test_it_is_the_least_of_all_though_not_all_are_asked(candidates):
    assert expected(candidates[choice(candidates)]) == min(map(expected, candidates))


@given(CANDIDATES, st.sampled_from([0.25, 0.5, 2.0, 8.0]), st.sampled_from([1.0, 2.0, 4.0]))
def test_what_all_have_in_common_is_of_no_matter(candidates, slower, doubtful):
    """Powers of two, whose products are exact."""
    assert choice([(slower * seconds, doubtful * doubt) for seconds, doubt in candidates]) == choice(candidates)


@given(st.lists(SECONDS, min_size=1, max_size=6), DOUBTS)
def test_with_equal_doubt_it_is_the_first_of_the_quickest(seconds, doubt):
    assert choice([(each, doubt) for each in seconds]) == seconds.index(min(seconds))


@given(CANDIDATES, st.floats(1.001, 2.0), st.floats(1.0, 1.5))
def test_what_is_slower_and_no_surer_is_never_chosen(candidates, slower, doubtful):
    seconds, doubt = candidates[0]
    assert choice([(slower * seconds, doubtful * doubt), *candidates]) != 0


def test_of_nothing_nothing_is_chosen():
    assert least_expected([], float, float) is None


@pytest.mark.parametrize("layouts", [{}, {"llm": Parallelism(dtype="bf16", cp=64)}])
def test_doubt_is_the_mean_of_an_error_of_that_interval(layouts):
    plan = files.read(GOLDEN, Plan)
    nearest = nearest_run(plan, layouts)
    drawn = np.random.default_rng(0).normal(0.0, nearest.spread / HALF_OF_80, 1_000_000)
    assert plan_doubt(plan, layouts) == pytest.approx(np.exp(drawn).mean(), abs=4 * nearest.spread / 1000)
    assert plan_doubt(plan, layouts) == doubt_at(nearest) > 1.0 == doubt_at(None)


@given(st.floats(0.0, 0.5), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_distance_in_common_leaves_the_ratio_of_expectations(own, other, shared):
    """Independent errors: what all have more of variance multiplies all alike."""

    def mean(spread):
        return exp((spread / HALF_OF_80) ** 2 / 2)

    ratio = mean(own) / mean(other)
    assert mean(sqrt(own**2 + shared**2)) / mean(sqrt(other**2 + shared**2)) == pytest.approx(ratio)


def test_what_is_passed_over_says_that_it_is_quicker_and_less_sure():
    plan = files.read(GOLDEN, Plan)
    name, own = next(iter(plan.layouts.items()))
    far = with_fields(plan, layouts={name: with_fields(own, cp=64)})
    assert nearest_run(far).distance > nearest_run(plan).distance
    said = passed_over(plan, far, 0.999)
    assert said.startswith("0.1 % quicker by prediction, and less sure") and passed_over(plan, far, 1.0) == ""
