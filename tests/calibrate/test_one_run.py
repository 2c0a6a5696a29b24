"""One measured run: the likeliest coefficients are those of the linear Gaussian problem, and say nothing beyond it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.calibrate import calibrated_to_run, write_own_run
from planner.calibrate.one_run import UNEXPLAINED, WIDTHS, errors_after_one_run, shifts_of_run
from planner.scoring import read_plan
from planner.specs.framework.software import Software
from planner.specs.library import read_named

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


@pytest.fixture(scope="module")
def plan():
    return read_plan(PLAN)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_plan_is_predicted_nearer_to_its_run_and_no_further(plan, factor, tmp_path):
    right = calibrated_to_run(plan, 1.0).predicted
    run = calibrated_to_run(plan, right * factor)
    assert min(right, run.measured) < run.after < max(right, run.measured)
    assert abs(np.log(run.after / run.measured)) < 0.5 * abs(np.log(factor))
    paths = write_own_run(run, plan, tmp_path, "2026-11-26")
    written, shipped = (read_named(name, Software)[0] for name in (str(paths[0]), plan.uses.software.name))
    assert (written.timing.kernels > shipped.timing.kernels) == (factor < 1)


def test_a_run_as_predicted_changes_nothing(plan):
    predicted = calibrated_to_run(plan, 1.0).predicted
    assert max(map(abs, calibrated_to_run(plan, predicted).shifts.values())) == 0.0
