"""Traits come out of steps that they made; neither records nor sources that are off turn the others around."""

from dataclasses import replace

import numpy as np
import pytest

from planner.calibrate.coefficients import CoefficientName
from planner.calibrate.framework_fit import GENERIC, linearised_fit, predicted_seconds
from planner.calibrate.timed_cases import machines_of_cases
from tests.calibrate.made_cases import grid, measured, truth

KNOWN = {"tp_exposed": 0.9, "passes": 1.5}


def errors(cases, values):
    seconds = np.array([case.seconds for case in cases])
    return np.abs(predicted_seconds(cases, machines_of_cases(cases), values) / seconds - 1)


@pytest.fixture(scope="module")
def exact():
    return measured(grid("one"), truth(**KNOWN))


@pytest.fixture(scope="module")
def found(exact):
    return linearised_fit(exact, machines_of_cases(exact)).fitted_to()


def test_what_made_the_steps_is_found(found, exact):
    assert np.median(errors(exact, found.values)) < 0.01
    assert found.values[CoefficientName("nemo", "tp_exposed")] == pytest.approx(0.9, rel=0.2)
    assert found.values[CoefficientName("nemo", "passes")] > 1.25  # 1.5, drawn to 1.2


def test_what_no_row_tells_is_no_coefficient_and_what_they_hardly_tell_stays_as_assumed(found):
    assert CoefficientName("nemo", "cast") not in found.values  # no record is in fp8
    hidden = next(name for name in found.values if name.name == "pp_exposed")  # one for all frameworks
    assert found.stays_at_prior(hidden) and found.values[hidden] == pytest.approx(0.4, rel=0.01)
    assert not found.stays_at_prior(CoefficientName("nemo", "tp_exposed"))


def test_rows_that_are_off_pull_no_harder_than_others(exact, found):
    spoilt = [replace(c, seconds=c.seconds * 5) if n % 10 == 0 else c for n, c in enumerate(exact)]
    again = linearised_fit(spoilt, machines_of_cases(spoilt)).fitted_to()
    assert np.median(errors(exact, again.values)) < 0.1  # of a tenth of the records, five times too slow


def test_a_source_that_is_off_does_not_outvote_two_that_agree(exact):
    others = measured(grid("two"), truth(**KNOWN))
    wrong = [replace(c, seconds=c.seconds * 1.8) for c in measured(grid("wrong"), truth(**KNOWN))]
    cases = [*exact, *others, *wrong]
    values = linearised_fit(cases, machines_of_cases(cases)).fitted_to().values
    assert np.median(errors([*exact, *others], values)) < 0.08


def test_the_order_of_rows_changes_nothing(exact, found):
    order = np.random.default_rng(1).permutation(len(exact))
    mixed = [exact[n] for n in order]
    again = linearised_fit(mixed, machines_of_cases(mixed)).fitted_to()
    assert again.values == pytest.approx(found.values, rel=1e-3)


def test_the_same_rows_give_the_same_values(exact, found):
    assert linearised_fit(exact, machines_of_cases(exact)).fitted_to() == found


def test_an_unknown_framework_is_the_generic_one(exact, found):
    strange = [replace(case, software="strange") for case in exact]
    common = {coefficient: value for coefficient, value in found.values.items() if coefficient.owner != "nemo"}
    assert predicted_seconds(strange, machines_of_cases(exact), found.values) == pytest.approx(
        predicted_seconds(exact, machines_of_cases(exact), common), rel=1e-12
    )
    assert any(coefficient.owner == GENERIC for coefficient in common)


def test_values_as_arrays_price_as_values_one_by_one(exact):
    """One pass over [values, 1] against [cases], which is what slopes are made of."""
    few, run_on = exact[:3], machines_of_cases(exact[:3])
    each = [predicted_seconds(few, run_on, truth(passes=value)) for value in (0.8, 1.6)]
    with_array = truth() | {CoefficientName("nemo", "passes"): np.array([[0.8], [1.6]])}
    from planner.calibrate.framework_fit import machine_with
    from planner.costs.step.static_step import static_step_seconds

    for place, case in enumerate(few):
        both = static_step_seconds(case.module, case.setup, machine_with(run_on[place], case, with_array)).seconds
        assert np.ravel(both) == pytest.approx([record[place] for record in each], rel=1e-12)
