"""What is left out is predicted by the others, and intervals hold four fifths of it."""

import numpy as np
import pytest

from planner.calibrate import published_fit
from planner.calibrate.coefficients import GENERIC
from planner.calibrate.framework_fit import linearised_fit, measured_logs, predicted_seconds
from planner.calibrate.published_fit import SHARE, half_width, held_out_errors, interval_spreads
from planner.calibrate.timed_cases import machines_of_cases
from tests.calibrate.made_cases import grid, measured, truth


@pytest.fixture(scope="module")
def cases():
    both = truth(("nemo", "fsdp"), passes=1.4)
    return [
        *measured(grid("one"), both, 0.05, 1),
        *measured(grid("two"), both, 0.05, 2),
        *measured(grid("alone", "fsdp"), both, 0.05, 3),
    ]


@pytest.fixture(scope="module")
def out(cases):
    return held_out_errors(linearised_fit(cases, machines_of_cases(cases)))


def test_sources_that_agree_predict_each_other(out):
    own, common, _ = out
    assert np.median(np.abs(own)) < 0.08 and np.median(np.abs(common)) < 0.08


def test_a_framework_of_one_source_is_the_generic_one_without_it(cases, out):
    own, common, _ = out
    alone = np.array([case.origin.source == "alone" for case in cases])
    assert own[alone] == pytest.approx(common[alone])


def test_one_step_from_the_fit_to_all_is_the_fit_to_the_others(cases, out):
    others = [case for case in cases if case.origin.source != "two"]
    fitted = linearised_fit(others, machines_of_cases(others)).fitted_to().values
    inside = [case for case in cases if case.origin.source == "two"]
    again = np.log(predicted_seconds(inside, machines_of_cases(inside), fitted)) - measured_logs(inside)
    two = np.array([case.origin.source == "two" for case in cases])
    assert out[0][two] == pytest.approx(again, abs=0.01)


def test_only_what_is_asked_for_is_left_out(cases):
    said = []
    fit = linearised_fit(cases, machines_of_cases(cases))
    own, *_ = held_out_errors(fit, ["two"], lambda done, of, name: said.append(name))
    two = np.array([case.origin.source == "two" for case in cases])
    assert np.isfinite(own[two]).all() and np.isnan(own[~two]).all()
    assert said == ["two", ""]


def test_intervals_are_of_the_sources_left_out_where_each_is(cases, out, tmp_path, monkeypatch):
    """Otherwise they are twice the errors of what was fitted."""
    monkeypatch.setattr(published_fit, "read_published", lambda folder: (cases, []))
    each, none = (published_fit.calibrate_published(tmp_path, which, lambda *_: None) for which in (["each"], []))
    assert each.spreads == interval_spreads(each.cases, each.held_out_logs, each.generic_logs)
    assert np.isfinite(each.held_out_logs).all() and np.isnan(none.held_out_logs).all()
    assert each.spreads != none.spreads and each.spreads.keys() == none.spreads.keys()


def test_the_interval_holds_four_fifths_of_what_was_left_out(cases, out):
    own, common, _ = out
    widths = interval_spreads(cases, own, common)
    assert set(widths) == {GENERIC, "nemo", "fsdp"}
    for name in ("nemo", "fsdp"):
        rows = np.array([case.software == name for case in cases])
        assert SHARE <= np.mean(np.abs(own[rows]) <= widths[name]) <= SHARE + 0.05


@pytest.mark.parametrize("size", [5, 30, 1000])
def test_half_width_is_the_least_that_holds_the_share(size):
    logs = np.random.default_rng(size).normal(0, 0.2, size)
    width = half_width(logs)
    assert np.mean(np.abs(logs) <= width) >= SHARE > np.mean(np.abs(logs) < width)
