"""Backward in two passes, I and W, gives the loss and the gradients of one process, wherever its W stand."""

import pytest

from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from tests.examples import soaked
from tests.meshes import meshed
from tests.runtime.training_worlds import DECODER, asked_for, run_all, spread

pytestmark = pytest.mark.slow

GPT = Decoder(
    layers=4, hidden=32, heads=8, ffn=48, vocab=64, gated=False, norm="layer", bias="all",
    positions="learned", max_positions=64, tied=True,
)  # fmt: skip
MOE = with_fields(DECODER, moe=Experts(experts=4, topk=2, ffn=16, shared_ffn=16, dense_layers=1))
STAGED = {"pp": 2, "dp": 2}
LATE = ("F0 F1 F2 I0 I1 I2 W2 W0 W1", "F0 I0 F1 I1 F2 I2 W1 W2 W0")  # W in another order than I
MIXED = ("F0 F1 F2 I0 B1 I2 W2 W0", "F0 B0 F1 I1 F2 W1 B2")
CHUNKS = (
    "F0@0 F1@0 F0@2 F1@2 I0@2 I1@2 B0@0 I1@0 W1@2 W0@2 W1@0",
    "F0@1 F1@1 F0@3 I0@3 F1@3 I1@3 W1@3 I0@1 I1@1 W0@3 W1@1 W0@1",
)
UNEQUAL = [[(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]
PLANS = {
    "zb_h1": spread(4, pp=4, zero=0, order="zb_h1", rows=[[(0, 1, 2, 3)]] * 5),
    "zb_h2": spread(4, pp=4, zero=1, order="zb_h2", rows=[[(0, 1, 2, 3)]] * 7),
    "zero 0": spread(4, **meshed(STAGED), zero=0, order="zb_h1", rows=UNEQUAL),
    "zero 1": spread(4, **meshed(STAGED), zero=1, order="zb_h2", rows=UNEQUAL),
    "zero 3, idle ranks": spread(4, **meshed(STAGED), zero=3, order="zb_h1", rows=UNEQUAL),
    "zero 3, late": spread(4, **meshed(STAGED), zero=3, order=LATE, rows=[[(0, 1, 2, 3)]] * 3),
    "zero 3, mixed": spread(4, **meshed(STAGED), zero=3, order=MIXED, rows=UNEQUAL),
    "late": spread(4, **meshed(STAGED), zero=2, order=LATE, rows=[[(0, 1, 2, 3)]] * 3),
    "mixed": spread(4, **meshed(STAGED), zero=1, order=MIXED, rows=UNEQUAL),
    "chunks": spread(4, **meshed(STAGED), zero=1, order=CHUNKS, vpp=2, rows=[[(0, 2), (1, 3)]] * 2),
    "one stage": spread(4, dp=4, zero=3, order=("F0 I0 F1 I1 W1 W0",), rows=[[(0, 1), (2, 3)], [(0, 1)]]),
    "tied, biases": spread(4, GPT, **meshed(STAGED), zero=1, order="zb_h1"),
    "experts": spread(4, MOE, **meshed(STAGED), zero=3, order="zb_h1", ep=2),
    "tensor parallel": spread(4, pp=2, tp=2, zero=0, order="zb_h2"),
}
ROUNDED = {
    dtype: {
        order: spread(4, **meshed(STAGED), zero=zero, dtype=dtype, order=order, rows=[[(0, 2), (1, 3)]] * 3)
        for zero, order in ((1, "zb_h1"), (3, LATE), (3, MIXED), (1, "1f1b"))
    }
    for dtype in ("float32", "bf16")
}
FORWARD = {"forward_only": spread(4, **meshed(STAGED), zero=1, order="forward_only", rows=[[(0, 2), (1, 3)], [(1, 3)]])}


RECORDED = ("zero 3, late", "zero 3, mixed", "mixed", "zb_h1")
OFTEN = (*RECORDED, "chunks", "one stage")  # the others in the soak


@pytest.fixture(scope="module")
def results(request):
    exact = {name: PLANS[name] for name in dict.fromkeys([*asked_for(request, "name"), *RECORDED])}
    dtypes = dict.fromkeys([*asked_for(request, "dtype"), "bf16"])
    rounded = {(dtype, order): plan for dtype in dtypes for order, plan in ROUNDED[dtype].items()}
    return run_all(4, {**exact, **rounded, **FORWARD}, twice={*rounded, *FORWARD})


@pytest.mark.parametrize("name", soaked(PLANS, OFTEN))
@pytest.mark.every(2)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified


@pytest.mark.parametrize(
    ("dtype", "loss", "gradients"), [pytest.param("float32", 1e-6, 1e-5, marks=pytest.mark.soak), ("bf16", 1e-2, 5e-2)]
)
def test_narrower_numbers_lose_no_more_than_with_a_whole_backward(results, dtype, loss, gradients):
    whole = results[dtype, "1f1b"].verify
    for order in ROUNDED[dtype]:
        verified = results[dtype, order].verify
        assert verified.loss_rel_err <= loss
        assert verified.grad_rel_err <= min(gradients, 1.5 * whole.grad_rel_err), (order, verified, whole)


@pytest.mark.parametrize("dtype", soaked(ROUNDED, ["bf16"]))
def test_in_the_same_order_w_adds_the_same_numbers_as_b(results, dtype):
    """To the bit: sums that were rounded more often than those of whole backwards would show."""
    cut, whole = results[dtype, "zb_h1"], results[dtype, "1f1b"]
    assert cut.verify == whole.verify
    assert [step.loss for step in cut.steps] == [step.loss for step in whole.steps]


@pytest.mark.parametrize("name", RECORDED)
def test_every_task_of_the_plan_has_a_record_on_each_of_its_ranks(results, name):
    tasks = {(task.id, rank) for task in expand(PLANS[name]) for rank in task.ranks}
    measured = results[name].steps[-1].measured
    assert {(record.id, record.rank) for record in measured} == tasks
    assert all(record.end >= record.start >= 0 for record in measured)
    sent = {task.id for task in expand(PLANS[name]) if task.phase == "sync"}
    assert all(record.sent_bytes > 0 for record in measured if record.id in sent)
    assert all(record.sent_bytes == 0 for record in measured if "/W/" in record.id)


def test_forwards_alone_give_the_loss_and_change_nothing(results):
    result = results["forward_only"]
    assert result.verify.loss_rel_err <= 1e-12
    assert result.steps[0].loss == result.steps[1].loss
    assert {record.id.split("/")[1] for record in result.steps[0].measured} == {"F", "sendF", "recvF"}
