"""A pipeline gives the loss and the gradients of one process, whatever its order."""

import pytest

from tests.runtime.training_worlds import run_all, spread

pytestmark = pytest.mark.slow

PLANS = {
    4: {
        "1f1b": spread(4, pp=4, zero=1),
        "gpipe, dp": spread(
            4, dp=2, pp=2, rank_order="pp-dp", zero=1, order="gpipe", rows=[[(0, 1), (2, 3)], [(0, 1, 2, 3)]]
        ),
        "pp first": spread(4, pp=2, dp=2, zero=0, rows=[[(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]),
        "interleaved": spread(4, dp=2, pp=2, rank_order="pp-dp", vpp=2, zero=2, rows=[[(0, 1, 2, 3)]] * 4),
        "zero 3": spread(4, pp=2, dp=2, zero=3, rows=[[(0, 2), (1, 3)], [(0, 2)], [(0, 1, 2, 3)]]),
        "recompute": spread(4, pp=2, dp=2, zero=1, recompute="full"),
    },
}


@pytest.fixture(scope="module")
def results():
    return {size: run_all(size, plans) for size, plans in PLANS.items()}


@pytest.mark.parametrize(("size", "name"), [(size, name) for size, plans in PLANS.items() for name in plans])
def test_loss_and_gradients_are_those_of_one_process(results, size, name):
    verified = results[size][name].verify
    assert verified.steps == 1
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
