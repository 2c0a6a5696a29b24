"""Recomputation that no record states is inferred from what would fit."""

from dataclasses import replace

import pytest

from planner.published.case_memory import case_accounting, fullest_footprint
from planner.published.possible_setups import unstated_spread, with_inferred_recompute
from planner.published.read_published import read_case
from planner.specs.framework.software import Software
from planner.specs.library import read_named
from tests.published.made_records import record


@pytest.fixture(scope="module")
def silent():
    """A run that says nothing of recomputation, and fits without."""
    case = read_case(record(recompute=""))
    assert "recompute" in case.assumed
    return replace(case, setup=replace(case.setup, full_recompute=0.0))


def footprint(case, share):
    accounting = case_accounting(case, read_named(case.software, Software)[0])
    return float(fullest_footprint(case, replace(case.setup, full_recompute=share), accounting).total)


def test_a_run_that_fits_without_recomputes_nothing(silent):
    roomy = replace(silent, device_bytes=footprint(silent, 0.0) * 1.01)
    assert with_inferred_recompute(roomy) == roomy


def test_a_run_that_would_not_fit_recomputes_between_the_least_that_fits_and_everything(silent):
    tight = replace(silent, device_bytes=footprint(silent, 0.5) * 1.0001)
    assert with_inferred_recompute(tight).setup.full_recompute == pytest.approx((0.5 + 1.0) / 2)
    hopeless = replace(silent, device_bytes=footprint(silent, 1.0) * 0.5)
    assert with_inferred_recompute(hopeless).setup.full_recompute == 1.0


def test_what_a_record_says_what_it_offloads_and_what_ran_out_of_memory_stay(silent):
    tight = replace(silent, device_bytes=1.0)
    offloads = replace(tight, settings_text="activation offloading required")
    for case in (replace(tight, assumed=()), replace(tight, oom=True), offloads):
        assert with_inferred_recompute(case) == case


def test_intervals_are_wider_for_what_is_not_said(silent):
    assert unstated_spread(silent) > unstated_spread(replace(silent, assumed=())) == 0.0
