"""Plans of the guide that were written by hand train like one process."""

from pathlib import Path

import pytest

from planner import files
from planner.plan.plan_file import Plan
from planner.runtime.run_options import RunOptions
from tests.runtime.training_worlds import run_all

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden/by_hand"
NAMES = ("mixed-groups", "shared-devices", "experts-by-layer")


@pytest.fixture(scope="module")
def results():
    plans = {name: files.read(GOLDEN / name / "plan.yaml", Plan) for name in NAMES}
    return run_all(4, plans, RunOptions(steps=1, verify=True, seed=5, dtype="float64"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.every(3)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
