"""A pipeline gives the loss and the gradients of one process, whatever its order."""

import pytest

from tests.examples import soaked
from tests.runtime.training_worlds import asked_for, run_all, spread

pytestmark = pytest.mark.slow

PLANS = {
    "1f1b": spread(4, pp=4, zero=1),
    "gpipe, dp": spread(
        4, dp=2, pp=2, rank_order="pp-dp", zero=1, order="gpipe", rows=[[(0, 1), (2, 3)], [(0, 1, 2, 3)]]
    ),
    "pp first": spread(4, pp=2, dp=2, zero=0, rows=[[(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]),
    "interleaved": spread(4, dp=2, pp=2, rank_order="pp-dp", vpp=2, zero=2, rows=[[(0, 1, 2, 3)]] * 4),
    "zero 3": spread(4, pp=2, dp=2, zero=3, rows=[[(0, 2), (1, 3)], [(0, 2)], [(0, 1, 2, 3)]]),
    "recompute": spread(4, pp=2, dp=2, zero=1, recompute="full"),
}


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")})


@pytest.mark.parametrize("name", soaked(PLANS, ["pp first"]))  # the soak has all, and the pairs most
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert verified.steps == 1
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
