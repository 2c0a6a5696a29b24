"""What it is worth to know which of several predicted times is the least."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.plan.plan_file import Alternative, Plan
from planner.scoring import SETTLING_ROUNDS, SETTLING_STEPS, undecided_order
from planner.scoring.expected_seconds import HALF_OF_80
from planner.scoring.undecided_order import MOST_OF_GAIN, MOST_TIES, ORDER_SPREAD, cheapest_measurement, expected_gain
from planner.specs.base import with_fields
from planner.specs.parallelism import Parallelism

GOLDEN = Path(__file__).parents[1] / "golden"
TIMES = st.lists(st.floats(1.0, 1.5), min_size=1, max_size=4)


@pytest.mark.parametrize("times", [(1.0, 1.0), (2.0, 2.1), (1.0, 1.05, 1.1, 1.2)])
def test_it_is_what_drawn_errors_give(times):
    drawn = np.random.default_rng(0).normal(0.0, ORDER_SPREAD / HALF_OF_80 / np.sqrt(2), (400_000, len(times)))
    least = (np.log(np.array(times) / times[0]) + drawn).min(axis=1).mean()
    assert expected_gain(times, [ORDER_SPREAD / np.sqrt(2)] * len(times)) == pytest.approx(
        1.0 - np.exp(least), abs=2e-4
    )


@pytest.mark.parametrize("measured", [(0, 1), (0, 2), (0, 1, 3), (0, 1, 2, 3)])
def test_of_some_measured_it_is_what_drawn_errors_give(measured):
    times, spreads = (1.0, 1.05, 0.98, 1.2), (0.1, 0.2, 0.05, 0.3)
    stdev = [each / HALF_OF_80 if at in measured else 0.0 for at, each in enumerate(spreads)]
    drawn = np.random.default_rng(1).normal(0.0, 1.0, (400_000, len(times))) * stdev
    least = (np.log(times) + drawn).min(axis=1).mean()
    assert expected_gain(times, spreads, measured) == pytest.approx(1.0 - np.exp(least), abs=3e-4)


@given(TIMES, st.floats(0.01, 0.3))
def test_the_cheapest_measurement_has_most_of_the_gain_and_no_cheaper_one_has(times, spread):
    predicted, spreads = [1.0, *times], [spread] * (1 + len(times))
    chosen, most = cheapest_measurement(predicted, spreads), expected_gain(predicted, spreads)
    assert chosen[0] == 0 and expected_gain(predicted, spreads, chosen) >= MOST_OF_GAIN * most
    for count in range(1, len(predicted)):
        for some in combinations(range(1, len(predicted)), count):
            if sum(predicted[at] for at in some) < sum(predicted[at] for at in chosen[1:]) - 1e-9:
                assert expected_gain(predicted, spreads, (0, *some)) < MOST_OF_GAIN * most


def test_a_tie_that_is_hardly_worth_it_is_not_measured():
    assert cheapest_measurement([1.0, 1.0, 1.3], [0.1] * 3) == (0, 1)
    assert cheapest_measurement([1.0, 1.0, 1.0], [0.1] * 3) == (0, 1)
    assert cheapest_measurement([1.0, 1.0, 1.0, 1.0], [0.1] * 4) == (0, 1, 2)
    assert cheapest_measurement([1.0], [0.1]) == (0,)


@given(TIMES, st.floats(0.0, 0.3))
def test_one_more_never_lowers_it_and_a_unit_of_time_is_of_no_matter(times, spread):
    def of(times):
        return expected_gain(times, [spread] * len(times))

    gain = of([1.0, *times])
    assert 0.0 <= gain + 1e-6 < 1.0
    assert of([1.0, *times, 1.1]) >= gain - 1e-6
    assert of([3.0, *(3.0 * each for each in times)]) == pytest.approx(gain, abs=1e-6)


def test_nothing_is_worth_measuring_where_nothing_is_uncertain_or_else():
    assert expected_gain([1.0, 1.0], [0.0, 0.0]) == 0.0 == expected_gain([1.0], [0.2])
    assert expected_gain([0.0, 0.0], [0.2, 0.2]) == 0.0
    assert expected_gain([1.0, 4.0], [ORDER_SPREAD] * 2) == pytest.approx(0.0, abs=1e-6)


def test_the_less_sure_one_is_worth_more_to_measure():
    even, unsure = (expected_gain([1.0, 1.02], spreads) for spreads in ([0.1, 0.1], [0.1, 0.3]))
    assert unsure > even
    plan = files.read(GOLDEN / "parallel_search" / "llama-3-8b-h100x64" / "plan.yaml", Plan)
    value, (name, own) = plan.outcome.value, next(iter(plan.layouts.items()))
    near, far = (
        Alternative(strategy="parallel_search", value=1.01 * value, layouts={name: Parallelism(dtype=own.dtype, cp=cp)})
        for cp in (own.cp, 64)
    )
    gains = [undecided_order(with_fields(plan, alternatives=(each,))).gain for each in (near, far)]
    assert gains[0] < gains[1]


def test_ties_are_the_closest_that_compute_in_the_same_data_types():
    plan = files.read(GOLDEN / "parallel_search" / "llama-3-8b-h100x64" / "plan.yaml", Plan)
    value, (name, own) = plan.outcome.value, next(iter(plan.layouts.items()))
    near = [(1.0 + at / 100, own.dtype) for at in range(5)]
    others = [
        Alternative(strategy="parallel_search", value=value * by, layouts={name: Parallelism(dtype=dtype)})
        for by, dtype in [
            (1.3, None),
            (0.7, own.dtype),
            (1.01, "fp8"),
            (0.99, own.dtype),
            *near,
        ]
    ]
    others.append(with_fields(others[4], launchable=False))
    order = undecided_order(with_fields(plan, alternatives=tuple(others)))
    looked_at = [0.99 + at / 100 for at in range(MOST_TIES)]
    assert [each.value / value for each in order.ties] == pytest.approx(looked_at[:2])  # most of the gain of all three
    assert 0.03 < order.gain < 0.1
    trained = (1.0 + 0.99 + 1.0) * plan.prediction.step_seconds / len(plan.steps)
    assert order.seconds == pytest.approx(SETTLING_ROUNDS * SETTLING_STEPS * trained)
    assert undecided_order(with_fields(plan, alternatives=())) == ((), 0.0, 0.0)
