"""One measured run: the likeliest coefficients are those of the linear Gaussian problem, and say nothing beyond it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.calibrate import calibrated_to_run, write_own_run
from planner.calibrate.after_one_run import source_errors
from planner.calibrate.framework_fit import predicted_seconds
from planner.calibrate.one_run import (
    UNEXPLAINED,
    WIDTHS,
    errors_after_one_run,
    shifted_timing,
    shifts_of_run,
    standard_deviations,
)
from planner.calibrate.timed_cases import machines_of_cases
from planner.errors import InputError
from planner.scoring import read_plan, throughput
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.library import read_named
from tests.calibrate.made_cases import grid, truth

NAMES = list(WIDTHS)
PLAN = Path("tests/golden/pipeline_order/llama-3-8b-h100x8/plan.yaml")
SLOPES = st.lists(st.floats(-1, 1), min_size=len(NAMES), max_size=len(NAMES)).map(np.array)


@given(SLOPES, st.floats(-0.5, 0.5))
def test_shifts_are_the_least_of_the_penalised_squares(slopes, error):
    """Gradient of ((e + gᵀx)/σ)² + Σ(x/w)² is zero there, and the error that remains has the same sign, and is less."""
    shifts = np.array([*shifts_of_run(dict(zip(NAMES, slopes.tolist(), strict=True)), error).values()])
    widths, left = np.array([*WIDTHS.values()]), error + slopes @ shifts
    assert slopes * left / UNEXPLAINED**2 + shifts / widths**2 == pytest.approx(0.0, abs=1e-9)
    assert left * error >= 0 and abs(left) <= abs(error) + 1e-12


@given(SLOPES, SLOPES, st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_errors_of_other_runs_are_those_with_the_shifts(first, second, error, other):
    widths = np.array([*WIDTHS.values()])
    shifts = np.array([*shifts_of_run(dict(zip(NAMES, first.tolist(), strict=True)), error).values()])
    after = errors_after_one_run(np.array([first, second]), widths, np.array([error, other]))
    assert after[0, 1] == pytest.approx(other + second @ shifts)
    assert np.isnan(np.diag(after)).all()


def test_no_shifts_change_nothing_be_casts_more_than_all_of_a_kernel():
    timing = TimingCoefficients(cast=3.0, tp_exposed=1.0)
    assert shifted_timing(timing, dict.fromkeys(NAMES, 0.0)) == timing
    up = shifted_timing(timing, {"cast": 0.1, "tp_exposed": 0.1})
    assert (up.cast, up.tp_exposed) == (3.0, 1.0)


def test_runs_that_took_what_their_possible_setups_take_in_the_mean_leave_no_error():
    cases = [replace(each, other_setups=(replace(each.setup, micro_batch=2),)) for each in grid("one")[:6]]
    seconds = predicted_seconds(cases, machines_of_cases(cases), truth())
    ran = [replace(each, seconds=float(value)) for each, value in zip(cases, seconds, strict=True)]
    assert np.nanmax(np.abs(source_errors(ran, truth()))) < 1e-12


@pytest.fixture(scope="module")
def plan():
    return read_plan(PLAN)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_plan_is_predicted_nearer_to_its_run_and_no_further(plan, factor, tmp_path):
    right = calibrated_to_run(plan, 1.0).predicted
    run = calibrated_to_run(plan, right * factor)
    assert min(right, run.measured) < run.after < max(right, run.measured)
    assert abs(np.log(run.after / run.measured)) < 0.5 * abs(np.log(factor))
    paths = write_own_run(run, plan, tmp_path, "2026-11-26")
    written, shipped = (read_named(name, Software)[0] for name in (str(paths[0]), plan.uses.software.name))
    assert (written.timing.kernels > shipped.timing.kernels) == (factor < 1)


@given(SLOPES, st.floats(-0.5, 0.5))
def test_a_run_is_as_far_off_as_the_shifts_that_explain_it_are_unlikely(slopes, error):
    """The least penalised squares themselves are the squared deviation."""
    by_name = dict(zip(NAMES, slopes.tolist(), strict=True))
    shifts = np.array([*shifts_of_run(by_name, error).values()])
    squares = ((error + slopes @ shifts) / UNEXPLAINED) ** 2 + np.sum((shifts / np.array([*WIDTHS.values()])) ** 2)
    assert standard_deviations(by_name, error) ** 2 == pytest.approx(squares, abs=1e-12)


@pytest.mark.slow
def test_a_step_beyond_the_peak_is_refused_and_one_far_off_is_doubted(plan, caplog):
    peak = throughput(plan, 1.0).mfu  # seconds of the step at an MFU of 1
    with pytest.raises(InputError, match="times the peak"):
        calibrated_to_run(plan, 0.99 * peak)
    predicted = calibrated_to_run(plan, 1.01 * peak).predicted
    caplog.clear()
    calibrated_to_run(plan, 1.1 * predicted)
    assert not caplog.records
    calibrated_to_run(plan, 10 * predicted)
    assert "is it the time of one step" in caplog.text


@pytest.mark.slow
def test_a_run_as_predicted_changes_nothing(plan):
    predicted = calibrated_to_run(plan, 1.0).predicted
    assert max(map(abs, calibrated_to_run(plan, predicted).shifts.values())) == 0.0
